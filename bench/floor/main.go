// Command floor measures what the machine allows: three processes that do for a
// put what nobody can leave out, and nothing else, in turn with a fresh Lockstep
// cluster and by the same rows.
//
// Each topic has a leader, as with a broker. Of a row with several topics each
// process leads a third; the only topic of any other row is led by the first one,
// so a lone producer is at its leader.
//
// A put goes from a client to the process that it is connected to, from there to
// the leader unless it is that, and on to the two others; each writes it to its
// file and syncs that, all three at the same time; then the answer goes back.
// Puts that wait gather, and share writes, syncs and messages, whatever their
// topics: one group at a time on each way. What comes from two leaders together
// shares a write, and what a process leads shares syncs with what it copies.
//
// Then the leader delivers each message once, in turn over the consumers of what
// it leads, at all three; those of the others get theirs through the process that
// they are connected to, and their FINs come back the same way. What was finished
// gathers for 10 ms, and all three write it to their files; it is not synced, and
// no put waits for it.
//
// A topic is nothing but the choice of a leader: a consumer may get a message of
// another topic of the same leader. There are no channels, no log, no checksums,
// no epochs. RDY is ignored, and nothing is delivered again: that a message was
// finished is written down and forgotten. Who puts to topics of several leaders
// gets each answer when it is there, not in the order of the puts. Nobody notices
// a failure, but that a consumer has gone; what was on its way to it is lost.
//
// It uses what a broker uses: Go, its network poller, TCP on loopback, a file of
// zeroes, fdatasync, and the paced monitor thread (docs/adr/0005). A better
// design of these same processes might still be faster: it is a yardstick, not a
// proof of the impossible.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/lockstepmq/lockstep/bench/child"
)

// comparableRows are the rows that have a counterpart here, and tell something.
const comparableRows = "pub-1,pub-8,pub-64,pipeline-8x100,pub-16k,mixed-4x4,mixed-64x4,e2e-5000,topics-200"

func main() {
	child.Serve(memberCommand, member)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("floor", flag.ContinueOnError)
	f.Usage = func() {
		fmt.Fprintln(f.Output(), "floor [flags] [-- flags of nsqctl bench]")
		f.PrintDefaults()
	}
	nsqctl := f.String("nsqctl", "bin/nsqctl", "the command that measures; it finds the broker beside itself")
	workloads := f.String("workloads", comparableRows, "rows to measure, with commas between")
	replicated := f.Bool("replicated", false, "nobody syncs: the cluster has --durability=replicated")
	if err := f.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-floor-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c, err := start(dir, !*replicated)
	if err != nil {
		return err
	}
	defer c.Stop()
	durability := "sync"
	if *replicated {
		durability = "replicated"
	}
	measure := []string{"bench", "--cluster", "--workloads=" + *workloads,
		"--compare=" + strings.Join(c.addresses, ","), "--compare-name=bare chain"}
	for _, pid := range c.PIDs() {
		measure = append(measure, fmt.Sprintf("--compare-pids=%d", pid))
	}
	measure = append(append(measure, f.Args()...), "--", "--durability="+durability)
	cmd := exec.CommandContext(ctx, *nsqctl, measure...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it stops its brokers
	return errors.Join(cmd.Run(), ctx.Err())
}
