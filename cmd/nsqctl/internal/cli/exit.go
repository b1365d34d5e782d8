package cli

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
	ExitFailed      = 1
	ExitUnreachable = 3   // no broker answered
	ExitNotFound    = 4   // no such topic, channel, broker or user
	ExitRefused     = 5   // the broker refused the request; the text says why
	ExitDiffers     = 6   // "check": replicas differ, or one is missing
	ExitUsage       = 64  // unknown command, flag or argument
	ExitInterrupted = 130 // Ctrl-C
)

// ExitCodesHelp is the part of --help that lists them.
const ExitCodesHelp = `Exit codes: 0 done; 1 failed; 3 no broker answers; 4 no such topic, channel,
broker or user; 5 refused by the broker; 6 "check" found a difference; 64 wrong
usage; 130 interrupted. "cluster health" ends with 0 well, 1 degraded, 2 unsafe.`

// ExitError is an error with its own exit code.
type ExitError struct {
	Code   int
	Silent bool // the command has printed the reason
	Err    error
}

// Error implements error.
func (e ExitError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e ExitError) Unwrap() error { return e.Err }

// EndSilently ends with a code and no further text: the command has printed the reason.
func EndSilently(code int) error { return ExitError{code, true, errors.New("failed")} }

// NotFound is the error of a name that the cluster does not have.
func NotFound(kind, name string) error {
	return ExitError{Code: ExitNotFound, Err: fmt.Errorf("no %s %q", kind, name)}
}

// ExitCode returns the code of a command's error.
func ExitCode(ctx context.Context, err error) int {
	var e ExitError
	switch status := api.Status(err); {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.Code
	case ctx.Err() != nil:
		return ExitInterrupted
	case status == http.StatusNotFound:
		return ExitNotFound
	case status >= 400 && status < 500:
		return ExitRefused
	case api.Unanswered(err):
		return ExitUnreachable
	}
	return ExitFailed
}

// markUsage makes wrong flags and arguments of all commands end with exitUsage.
func markUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return ExitError{Code: ExitUsage, Err: err} })
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return ExitError{Code: ExitUsage, Err: fmt.Errorf("%w; usage: %s", err, cmd.UseLine())}
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

// AsUsage gives such an error its exit code.
func AsUsage(err error) error {
	for _, text := range usageTexts {
		if err != nil && strings.HasPrefix(err.Error(), text) {
			return ExitError{Code: ExitUsage, Err: err}
		}
	}
	return err
}
