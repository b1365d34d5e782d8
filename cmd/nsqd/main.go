// Command nsqd is a broker of a Lockstep cluster: the NSQ protocol, a replicated log, and metadata in an embedded or
// external etcd.
//
// Exit codes: 0 stopped on request; 1 could not start, or had to stop, with the reason in the log; 2 wrong command
// line, or --check-config found a fault.
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

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/observe/redact"
	"github.com/sirupsen/logrus"
)

const (
	// secondSignalAfter is the least time between two signals: a signal that is sent to a process and to its group
	// arrives twice.
	secondSignalAfter = time.Second
	// exitUsage is the exit code of a wrong command line.
	exitUsage = 2
)

func main() { os.Exit(run(os.Args[1:])) }

// run is the life of the process; every step is undone in reverse order.
func run(args []string) int {
	// 1. Settings.
	build := api.ReadBuild().Describe(metadata.Level)
	o, warnings, err := config.Load(source(args))
	switch {
	case errors.Is(err, config.ErrHelp):
		return report(config.Help(os.Stdout, errors.Is(err, config.ErrHelpAll)))
	case err != nil:
		return refuse(err)
	case o.Version:
		fmt.Printf("%s\nnsqd v%s (the release of NSQ whose protocol and HTTP API it implements)\n", build, api.Version) // a stock nsqd has the second line
		return 0
	case o.CheckConfig:
		return checked(o, warnings)
	case o.PrintConfig:
		return report(config.Print(os.Stdout, source(args)))
	}
	log := newLog(o)
	pace(log)
	limitMemory(log)
	for _, w := range warnings {
		log.Warn(w)
	}
	log.Infof("%s, speaks NSQ %s, durability %s", build, api.Version, o.Durability)
	logSettings(log, o)

	// 2. Signals: the first one stops the broker as planned, the second at once; SIGHUP
	// reloads.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	reload := make(chan os.Signal, 1) // registered before the start: SIGHUP must never end the process
	signal.Notify(reload, syscall.SIGHUP)

	// 3. Start, serve, stop.
	ctx, fail := context.WithCancelCause(ctx)
	p := newProcess(o, args, log, fail)
	err = p.start(ctx, reload)
	switch {
	case err == nil:
		err = p.wait(ctx)
	case ctx.Err() != nil: // a signal, or a part that failed, has ended the start
		err = faultOf(ctx)
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

// source is where the settings come from.
func source(args []string) config.Source {
	return config.Source{Args: args, Env: os.LookupEnv, Environ: os.Environ, ReadFile: os.ReadFile}
}

// refuse prints the faults of the settings, and not the help, which is longer than a screen.
func refuse(err error) int {
	var f *config.Faults
	if errors.As(err, &f) && f.Understood.CheckConfig {
		return faulty(append(f.Lines, fileFaults(f.Understood)...))
	}
	code := config.ExitCode(err)
	fmt.Fprintf(os.Stderr, "nsqd: %s\n", strings.ReplaceAll(redact.Text(err.Error()), "\n", "\nnsqd: "))
	if code == exitUsage {
		fmt.Fprintln(os.Stderr, "nsqd --help-all explains all settings")
	}
	return code
}

// exitOnSecondSignal ends the process at once at a second signal, unless it is only a duplicate of the first. The
// goroutine ends with the process.
func exitOnSecondSignal(log logrus.FieldLogger) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		awaitSecondSignal(again)
		log.Warn("received a second signal, exiting at once")
		os.Exit(1)
	}()
}

// awaitSecondSignal returns at the first signal that is not a duplicate of one that has just come.
func awaitSecondSignal(again <-chan os.Signal) {
	first := time.Now()
	for range again {
		if time.Since(first) >= secondSignalAfter {
			return
		}
	}
}

func report(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, redact.Text(err.Error()))
		return 1
	}
	return 0
}
