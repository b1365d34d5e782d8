// Command flame draws the use of processor time in a broker. It starts a new cluster of three,
// runs two workloads of `nsqctl bench` on a topic of one partition, with all clients at its
// leader, and profiles brokers in the meantime.
//
//	leader.svg    64 connections publish, one outstanding put each: the leader
//	follower.svg  the same: a follower
//	consumer.svg  eight channels drain a backlog: the leader
//
// For each profile it prints the parts of each goroutine and each function.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/google/pprof/profile"

	"github.com/lockstepmq/lockstep/internal/test/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "flame:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	f := flag.NewFlagSet("flame", flag.ContinueOnError)
	nsqd := f.String("nsqd", "bin/nsqd", "binary of the broker")
	out := f.String("out", ".", "directory of the drawings")
	basePort := f.Int("base-port", 18150, "first port of the brokers")
	took := f.Duration("time", 15*time.Second, "longest time of a profile")
	backlog := f.Int("backlog", 2_000_000, "messages of the backlog for each channel")
	if err := f.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "bench-flame-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := start(ctx, dir, *nsqd, *basePort)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()

	put := bench.Workload{Name: "put", Connections: 64, Outstanding: 1, Size: 100, Messages: 1 << 30}
	profiles, err := s.during(ctx, put, *took, s.leader, s.follower)
	if err != nil {
		return err
	}
	drain := bench.Workload{Name: "drain", Kind: bench.Consume, Connections: 1, Channels: 8, Size: 100, Messages: *backlog}
	consumer, err := s.during(ctx, drain, *took, s.leader)
	if err != nil {
		return err
	}
	for i, p := range append(profiles, consumer...) {
		name := []string{"leader", "follower", "consumer"}[i]
		if err := show(os.Stdout, p, filepath.Join(*out, name+".svg"), name); err != nil {
			return err
		}
	}
	return nil
}

// show draws a profile, and prints its largest parts.
func show(out io.Writer, p *profile.Profile, file, name string) error {
	root := tree(p)
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	cores := time.Duration(root.total).Seconds() / time.Duration(p.DurationNanos).Seconds()
	title := fmt.Sprintf("%s: %.2f cores", name, cores)
	if err := draw(f, root, title); err != nil {
		return err
	}
	fmt.Fprintln(out, title)
	fmt.Fprintln(out, "goroutines, with their calls:")
	tell(out, root.sorted(), root)
	fmt.Fprintln(out, "functions and system calls, without their calls:")
	tell(out, root.leaves(), root)
	return f.Close()
}

// least is the smallest printed part in percent.
const least = 2

func tell(out io.Writer, parts []*frame, root *frame) {
	for _, part := range parts {
		if share := part.share(root); share >= least {
			fmt.Fprintf(out, "%6.1f %%  %s\n", share, part.name)
		}
	}
}
