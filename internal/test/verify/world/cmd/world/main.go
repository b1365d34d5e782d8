// Command world lives through the worlds of seeds and prints what is wrong in them: see package world.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/test/verify/world"
	"github.com/lockstepmq/lockstep/internal/test/verify/world/host"
)

func main() {
	first := flag.Uint64("seed", 1, "the first seed")
	n := flag.Int("n", 100, "how many seeds")
	workers := flag.Int("workers", runtime.NumCPU(), "how many at once")
	program := flag.String("program", "", "a program built before; default: it is built")
	twice := flag.Bool("twice", false, "run each seed twice and compare the traces")
	shrink := flag.Bool("shrink", true, "leave out faults of a seed that fails, as far as it still fails")
	quiet := flag.Bool("quiet", false, "print failing seeds and the sum alone")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	failed, err := run(ctx, *program, *first, *n, *workers, options{*twice, *shrink, *quiet})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

type options struct{ twice, shrink, quiet bool }

func run(ctx context.Context, program string, first uint64, n, workers int, o options) (failed int, err error) {
	if program == "" {
		folder, err := os.MkdirTemp("", "world")
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(folder)
		if program, err = host.Build(folder); err != nil {
			return 0, err
		}
	}
	seeds := make(chan uint64)
	var mu sync.Mutex
	var puts, faults, done int
	var wg sync.WaitGroup
	began := time.Now()
	for range workers {
		wg.Go(func() { // ends after the last seed
			for seed := range seeds {
				text, r, bad := one(ctx, program, seed, o)
				mu.Lock()
				done++
				puts += r.Puts
				faults += len(r.Plan)
				if bad {
					failed++
				}
				if bad || !o.quiet {
					fmt.Print(text)
				}
				mu.Unlock()
			}
		})
	}
	for i := range n {
		select {
		case seeds <- first + uint64(i):
		case <-ctx.Done():
		}
	}
	close(seeds)
	wg.Wait()
	took := time.Since(began)
	fmt.Printf("%d seeds from %d, %d failed; %d puts, %d faults; %s, %.0f seeds a minute, %.1f faults a second\n",
		done, first, failed, puts, faults, took.Round(time.Second), float64(done)/took.Minutes(), float64(faults)/took.Seconds())
	return failed, nil
}

// one runs a seed and describes the run.
func one(ctx context.Context, program string, seed uint64, o options) (text string, r world.Result, bad bool) {
	began := time.Now()
	r, err := host.Run(ctx, program, seed, nil)
	if ctx.Err() != nil {
		return "", r, false
	}
	if err != nil {
		return fmt.Sprintln(err), r, true
	}
	text = fmt.Sprintf("%s; %s\n", r, time.Since(began).Round(time.Millisecond))
	if o.twice {
		again, err := host.Run(ctx, program, seed, nil)
		if err != nil || again.Hash != r.Hash {
			return text + fmt.Sprintf("seed %d does not repeat: trace %016x, %v\n", seed, again.Hash, err), r, true
		}
	}
	if len(r.Violations) == 0 {
		return text, r, false
	}
	without := []int(nil)
	short := r
	if o.shrink {
		short, without = host.Shrink(ctx, program, r)
	}
	return text + short.Tale(without), r, true
}
