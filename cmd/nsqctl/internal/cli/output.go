package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// chooseOutput reduces --output to text or json, and sets flags for wide and yaml: commands print text or JSON, and
// YAML is converted from JSON.
func (t *Target) chooseOutput() error {
	switch t.Output {
	case "text", "json":
	case "table":
		t.Output = "text"
	case "wide":
		t.Output, t.Wide = "text", true
	case "yaml":
		t.Output, t.yaml = "json", true
	default:
		return Usage("--output is text, table, wide, json or yaml, not %q", t.Output)
	}
	return nil
}

// formatOutput makes --output valid for a command: a command without output prints {"result": "done"}, and YAML is
// converted from its JSON. A command whose output cannot be written ends with an error.
func (t *Target) formatOutput(cmd *cobra.Command) {
	run := cmd.RunE
	if run == nil {
		return
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		before, to := cmd.Context(), cmd.OutOrStdout()
		if before == nil {
			return run(cmd, args)
		}
		ctx, cancel := context.WithCancel(before)
		defer cancel()
		out := &Written{To: to, Failed: cancel}
		cmd.SetContext(ctx)
		cmd.SetOut(out)
		defer func() { cmd.SetOut(to); cmd.SetContext(before) }()
		return out.Result(t.structure(cmd, func() error { return run(cmd, args) }))
	}
}

func (t *Target) structure(cmd *cobra.Command, run func() error) error {
	if t.Output != "json" {
		return run()
	}
	out := &structured{to: cmd.OutOrStdout(), yaml: t.yaml}
	cmd.SetOut(out)
	err := run()
	if err == nil && !out.printed {
		err = PrintJSON(out, map[string]string{"result": "done"})
	}
	if closed := out.close(); closed != nil {
		return errors.Join(err, closed)
	}
	return err
}

// Written is an output that remembers its first error, so that commands need not check each write.
type Written struct {
	To     io.Writer
	Failed func() // called after the first error; nil: nothing is called

	mu  sync.Mutex
	err error
}

// Write implements io.Writer. After an error nothing more is written.
func (w *Written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.To.Write(p)
	if err != nil {
		w.err = err
		if w.Failed != nil {
			w.Failed()
		}
	}
	return n, err
}

// Result is the error of a command with this output.
func (w *Written) Result(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		return err
	}
	failed := fmt.Errorf("the output cannot be written: %w", w.err)
	silent, _ := errors.AsType[ExitError](err) // silent.Silent: the command has printed the reason, or has tried to
	if err != nil && !errors.Is(err, w.err) && !errors.Is(err, context.Canceled) && !silent.Silent {
		failed = fmt.Errorf("%w\n%w", err, failed)
	}
	return ExitError{Code: ExitFailed, Err: failed}
}

// structured passes JSON values on, as they are or as YAML documents.
type structured struct {
	to      io.Writer
	yaml    bool
	printed bool
	open    bytes.Buffer // an incomplete value
	values  int
}

// Write takes JSON in pieces of any size.
func (s *structured) Write(p []byte) (int, error) {
	s.printed = s.printed || len(p) > 0
	if !s.yaml {
		return s.to.Write(p)
	}
	s.open.Write(p)
	return len(p), s.convert()
}

// convert writes the complete values of open.
func (s *structured) convert() error {
	for {
		d := json.NewDecoder(bytes.NewReader(s.open.Bytes()))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			return nil // it is not complete yet; close reports the rest
		}
		s.open.Next(int(d.InputOffset()))
		text, err := yaml.Marshal(plain(v))
		if err != nil {
			return err
		}
		s.values++
		if _, err := io.WriteString(s.to, Mark(s.values > 1, "---\n")+string(text)); err != nil {
			return err
		}
	}
}

// close passes on a rest that is not JSON.
func (s *structured) close() error {
	rest := bytes.TrimSpace(s.open.Bytes())
	if len(rest) == 0 {
		return nil
	}
	_, err := s.to.Write(append(rest, '\n'))
	return err
}

// plain turns JSON's numbers into YAML's, without loss for integers.
func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // the decoder has accepted it as a number
		return f
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = plain(v[k])
		}
	}
	return v
}

// Print prints v as JSON, or the text that the function writes, with tabs between columns. The output reports its own
// errors.
func Print(cmd *cobra.Command, t *Target, v any, text func(w io.Writer)) error {
	if t.Output == "json" {
		return PrintJSON(cmd.OutOrStdout(), v)
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	text(w)
	return w.Flush()
}

// Show returns the RunE of a command that prints the answer of any broker to its request (Request).
func Show[T any](t *Target, path string, text func(w io.Writer, answer T), flags ...string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		var answer T
		if err := t.GetAny(cmd.Context(), path, Request(cmd, args, flags...), &answer); err != nil {
			return err
		}
		return Print(cmd, t, answer, func(w io.Writer) { text(w, answer) })
	}
}

// ShowList is Show for an answer that is a list in a field: it prints the list.
func ShowList[E any](t *Target, path, field string, text func(w io.Writer, list []E), flags ...string) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		list, err := brokerapi.List[E](cmd.Context(), &t.Client, path, Request(cmd, args, flags...), field)
		if err != nil {
			return err
		}
		return Print(cmd, t, list, func(w io.Writer) { text(w, list) })
	}
}

// ShowConsole prints an answer of the console. Before text it names the brokers that did not answer on standard error.
func ShowConsole[T any](cmd *cobra.Command, t *Target, path string, q url.Values, text func(w io.Writer, answer T)) error {
	var raw json.RawMessage
	var answer T
	var missing struct{ Unreachable []console.Unreachable }
	if err := t.GetAny(cmd.Context(), path, q, &raw); err != nil {
		return err
	}
	if err := errors.Join(json.Unmarshal(raw, &answer), json.Unmarshal(raw, &missing)); err != nil {
		return fmt.Errorf("%s: this is not the answer of a Lockstep broker: %w", path, err)
	}
	return Print(cmd, t, answer, func(w io.Writer) {
		for _, u := range missing.Unreachable {
			fmt.Fprintf(cmd.ErrOrStderr(), "no answer from %s (%s): its part is missing\n", u.Broker, api.Printable(u.Reason))
		}
		text(w, answer)
	})
}

// Known writes a number that may be unknown.
func Known[T any](v *T, format string) string {
	if v == nil {
		return "unknown"
	}
	return fmt.Sprintf(format, *v)
}

// Size writes a number of bytes that may be unknown.
func Size[N int64 | float64](bytes *N) string {
	if bytes == nil {
		return "unknown"
	}
	n := float64(*bytes)
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	i := 0
	for n >= 1024 && i < len(units)-1 {
		n /= 1024
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%.0f B", n)
	}
	return fmt.Sprintf("%.1f %s", n, units[i])
}

// Mark returns text if so is true, else "".
func Mark(so bool, text string) string {
	if so {
		return text
	}
	return ""
}

// Names returns the names of brokers, separated by commas.
func Names(nodes []ident.Node) (s string) {
	for i, n := range nodes {
		s += Mark(i > 0, ",") + string(n)
	}
	return s
}

// PrintJSON writes v indented.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
