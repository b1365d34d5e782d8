// Command nsqd is a broker of a Lockstep cluster: the NSQ protocol in front, a
// replicated log behind, metadata in etcd, which it embeds unless it is given
// one.
//
// Exit codes: 0 stopped as asked; 1 could not start, or had to stop (the log
// says why); 2 wrong command line.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/sirupsen/logrus"
)

const (
	// startTimeout bounds the wait for a majority of etcd and the registration.
	startTimeout = 5 * time.Minute
	// leaveTimeout bounds what the other members of the embedded etcd have to agree to
	// when a decommissioned broker stops.
	leaveTimeout = 8 * time.Second
	// handOverTimeout and drainTimeout bound a planned stop.
	handOverTimeout = 5 * time.Second
	drainTimeout    = 5 * time.Second
	// holdingEvery is how often a process looks whether its data path is still there.
	holdingEvery = time.Second
	// secondSignalAfter separates two signals: one that is sent to a process and to
	// its group arrives twice.
	secondSignalAfter = time.Second
	// exitUsage is what a wrong command line ends with.
	exitUsage = 2
)

func main() { os.Exit(run(os.Args[1:])) }

// run is the life of the process; every step is undone in reverse order.
func run(args []string) int {
	// 1. Settings.
	o, warnings, err := settings(args)
	switch {
	case errors.Is(err, config.ErrHelp):
		return report(config.Help(os.Stdout))
	case err != nil:
		return refuse(err)
	case o.Version:
		fmt.Println(versionLine())
		return 0
	}
	log := newLog(o)
	pace(log)
	for _, w := range warnings {
		log.Warn(w)
	}
	log.Info(versionLine())

	// 2. Signals: the first one stops gently, the second at once; SIGHUP reloads.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	reload := make(chan os.Signal, 1) // registered before the start: SIGHUP must never kill
	signal.Notify(reload, syscall.SIGHUP)

	// 3. Start, serve, stop.
	p := &process{o: o, log: log, args: args, files: shareFiles(fileLimit())}
	start, cancel := context.WithTimeout(ctx, startTimeout)
	err = p.start(start)
	cancel()
	if err == nil {
		err = p.wait(ctx, reload)
	} else if ctx.Err() != nil {
		err = nil // told to stop before the start was done
	}
	exitOnSecondSignal(log)
	p.stop()
	if err != nil {
		log.Error(err)
		return 1
	}
	log.Info("stopped")
	return 0
}

// settings reads them from where a process finds them.
func settings(args []string) (config.Options, []string, error) {
	return config.Load(config.Source{Args: args, Env: os.LookupEnv, ReadFile: os.ReadFile})
}

// refuse says what is wrong with the settings. The faults come last: the help is
// longer than a screen.
func refuse(err error) int {
	code := config.ExitCode(err)
	if code == exitUsage {
		_ = config.Help(os.Stderr) // the faults matter more
		fmt.Fprintln(os.Stderr)
	}
	fmt.Fprintf(os.Stderr, "nsqd: %s\n", strings.ReplaceAll(err.Error(), "\n", "\nnsqd: "))
	return code
}

// exitOnSecondSignal ends the process at once when it is told again, later than
// the first signal repeats itself. The goroutine ends with the process.
func exitOnSecondSignal(log logrus.FieldLogger) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGINT, syscall.SIGTERM)
	first := time.Now()
	go func() {
		for range again {
			if time.Since(first) >= secondSignalAfter {
				break
			}
		}
		log.Warn("told twice, exiting at once")
		os.Exit(1)
	}()
}

func report(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
