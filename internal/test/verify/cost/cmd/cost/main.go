// Command cost compares what two builds of nsqd cost (package cost) and prints a table:
//
//	cost BASE HEAD
//
// It fails if a row of HEAD costs too much. Rows that are undecided are printed, and noted in the file LOCKSTEP_SKIPS.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/lockstepmq/lockstep/internal/test/verify/cost"
)

func main() {
	var limits cost.Limits
	flag.DurationVar(&limits.Usual, "limit", 40*time.Second, "begin no further round after this time")
	flag.DurationVar(&limits.Suspicious, "suspicious", 4*time.Minute, "the same for rows whose median is too high")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, limits, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, limits cost.Limits, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: cost BASE HEAD: two executables of nsqd")
	}
	g := cost.New(cost.Builds{args[0], args[1]}, limits)
	if err := g.Run(ctx); err != nil {
		return err
	}
	if err := g.Report(os.Stdout); err != nil {
		return err
	}
	if rows := g.Undecided(); len(rows) > 0 {
		line := "cost: undecided, because the machine is too busy to compare the processor time: " + strings.Join(rows, ", ")
		fmt.Println(line)
		if err := note(line); err != nil {
			return err
		}
	}
	if rows := g.Regressed(); len(rows) > 0 {
		return fmt.Errorf("cost: more than 4 %% above the base: %s", strings.Join(rows, ", "))
	}
	return nil
}

// note appends a line to the file of skipped tests, which the build server prints.
func note(line string) error {
	name := os.Getenv("LOCKSTEP_SKIPS")
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}
