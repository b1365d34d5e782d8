package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/api"
)

// The exit codes. "cluster health" has its own for 1 and 2: degraded and unsafe.
const (
	exitFailed      = 1
	exitUnreachable = 3   // no broker answered
	exitNotFound    = 4   // no such topic, channel, broker or user
	exitRefused     = 5   // the broker refused the request; the text says why
	exitDiffers     = 6   // "check": replicas differ, or one is missing
	exitUsage       = 64  // unknown command, flag or argument
	exitInterrupted = 130 // Ctrl-C
)

// exitCodes is the part of --help that lists them.
const exitCodes = `Exit codes: 0 done; 1 failed; 3 no broker answers; 4 no such topic, channel,
broker or user; 5 refused by the broker; 6 "check" found a difference; 64 wrong
usage; 130 interrupted. "cluster health" ends with 0 well, 1 degraded, 2 unsafe.`

// ended is an error with its own exit code.
type ended struct {
	code   int
	silent bool // the command has printed the reason
	err    error
}

func (e ended) Error() string { return e.err.Error() }
func (e ended) Unwrap() error { return e.err }

// endSilently ends with a code and no further text: the command has printed the reason.
func endSilently(code int) error { return ended{code, true, errors.New("failed")} }

// notFound is the error of a name that the cluster does not have.
func notFound(kind, name string) error {
	return ended{code: exitNotFound, err: fmt.Errorf("no %s %q", kind, name)}
}

// exitCode returns the code of a command's error.
func exitCode(ctx context.Context, err error) int {
	var e ended
	switch status := api.Status(err); {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.code
	case ctx.Err() != nil:
		return exitInterrupted
	case status == http.StatusNotFound:
		return exitNotFound
	case status >= 400 && status < 500:
		return exitRefused
	case api.Unanswered(err):
		return exitUnreachable
	}
	return exitFailed
}

// markUsage makes wrong flags and arguments of all commands end with exitUsage.
func markUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return ended{code: exitUsage, err: err} })
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return ended{code: exitUsage, err: fmt.Errorf("%w; usage: %s", err, cmd.UseLine())}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		markUsage(sub)
	}
}

// usageTexts begin the errors of cobra that have no type and no hook.
var usageTexts = []string{"required flag(s)", "unknown command", "unknown shorthand", "unknown flag", "invalid argument"}

// asUsage gives such an error its exit code.
func asUsage(err error) error {
	for _, text := range usageTexts {
		if err != nil && strings.HasPrefix(err.Error(), text) {
			return ended{code: exitUsage, err: err}
		}
	}
	return err
}
