package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/internal/config"
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
	switch status := brokerapi.Status(err); {
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
	case brokerapi.Unanswered(err):
		return ExitUnreachable
	}
	return ExitFailed
}

// Usage is the error of a command line that is wrong.
func Usage(format string, args ...any) error {
	return ExitError{Code: ExitUsage, Err: fmt.Errorf(format, args...)}
}

// markUsage makes wrong flags and arguments of a command end with ExitUsage.
func markUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return ExitError{Code: ExitUsage, Err: flagFault(cmd, err)} })
	check := cmd.Args
	if check == nil {
		check = argumentsOf(cmd.Use)
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if e := (ExitError{}); err == nil || errors.As(err, &e) {
			return err
		}
		return Usage("%w; usage: %s", err, cmd.UseLine())
	}
}

// flagFault says what is wrong with a flag, and which one may be meant.
func flagFault(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		name := unknown.GetSpecifiedName()
		if len(name) == 1 {
			return fmt.Errorf("there is no flag -%s; %s --help lists them", name, cmd.CommandPath())
		}
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := config.Nearest(name, names); near != "" {
			return fmt.Errorf("there is no flag --%s; did you mean --%s?", name, near)
		}
		return fmt.Errorf("there is no flag --%s; %s --help lists them", name, cmd.CommandPath())
	case errors.As(err, &invalid):
		f := invalid.GetFlag()
		if want := wanted[f.Value.Type()]; want != "" {
			return fmt.Errorf("--%s=%s: must be %s", f.Name, invalid.GetValue(), want)
		}
		return fmt.Errorf("--%s=%s: %w", f.Name, invalid.GetValue(), invalid.Unwrap())
	}
	return err
}

// wanted describes the values of the types of flags whose own errors name functions of Go.
var wanted = map[string]string{
	"bool": "true or false", "duration": "a duration such as 250ms or 1m30s", "float64": "a number",
	"int": wholeNumber, "int64": wholeNumber, "uint16": "a whole number from 0 to 65535", "uint64": wholeNumber + ", 0 or more",
}

const wholeNumber = "a whole number of at most 19 digits"

// unknownCommand refuses the arguments of a command that has only commands below it.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	text := fmt.Sprintf("there is no command %q", cmd.CommandPath()+" "+args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return Usage("%s; did you mean %s?", text, strings.Join(near, " or "))
	}
	return Usage("%s; %s --help lists them", text, cmd.CommandPath())
}

// AsUsage gives the error of a missing flag, for which cobra has neither a type nor a hook, its exit code.
func AsUsage(err error) error {
	if err != nil && strings.HasPrefix(err.Error(), "required flag(s)") {
		return ExitError{Code: ExitUsage, Err: err}
	}
	return err
}
