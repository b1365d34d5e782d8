// Command floor measures the limit of the machine: three processes with only the indispensable
// work for a put, in turn with a new Lockstep cluster and with the same rows.
//
// Each topic has a leader, as with a broker. In a row with several topics each process leads a
// third of them. The only topic of any other row is led by the first process, so that an
// uncontended producer is connected to its leader.
//
// A put goes from a client to the process of its connection, from there to the leader unless
// that is the same process, and on to the two others. Each writes it to its file and syncs the
// file, all three at the same time. Then the answer returns. Waiting puts are gathered, and
// share writes, syncs and messages, whatever their topics: one group at a time on each
// connection. Groups of two leaders that arrive together share a write, and the groups that a
// process leads share syncs with those that it copies.
//
// Then the leader delivers each message once, in turn over the consumers of its topics at all
// three processes. The consumers of the other processes receive their messages through the
// process of their connection, and their FINs return the same way. Finishes are gathered for
// 10 ms, and all three processes write them to their files. They are not synced, and no put
// waits for them.
//
// A topic only selects a leader: a consumer may receive a message of another topic of the same
// leader. There are no channels, no log, no checksums, no epochs. RDY is ignored, and nothing
// is redelivered: a finish is written and never read. A producer that publishes to topics of
// several leaders receives each answer when it is ready, not in the order of the puts. No
// failure is detected, except that a consumer disconnects; its unfinished messages are lost.
//
// It uses the same parts as a broker: Go, its network poller, TCP on loopback, a file of
// zeroes, fdatasync, and the paced monitor thread (docs/adr/0005). A better design of these
// same processes might still be faster: it is a yardstick, not a proof of a limit.
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

// comparableRows are the rows with a comparable workload here.
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
	nsqctl := f.String("nsqctl", "bin/nsqctl", "the measuring command; its broker is in the same directory")
	workloads := f.String("workloads", comparableRows, "rows to measure, separated by commas")
	replicated := f.Bool("replicated", false, "without syncs; the cluster runs with --durability=replicated")
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
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // nsqctl stops its brokers
	return errors.Join(cmd.Run(), ctx.Err())
}
