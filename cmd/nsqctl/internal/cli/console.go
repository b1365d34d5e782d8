package cli

import (
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/frontend/console"
)

// Look gets an answer of the console. done: it is printed already, as JSON. Otherwise silent, the part
// of the answer with the brokers that gave none, has been named on standard error.
func Look(cmd *cobra.Command, t *Target, path string, q url.Values, answer any, silent *[]console.Unreachable) (done bool, err error) {
	if err := t.GetAny(cmd.Context(), path, q, answer); err != nil {
		return false, err
	}
	if t.Output == "json" {
		return true, PrintJSON(cmd.OutOrStdout(), answer)
	}
	warnSilent(cmd, *silent)
	return false, nil
}

// warnSilent names the brokers whose part is missing.
func warnSilent(cmd *cobra.Command, list []console.Unreachable) {
	for _, u := range list {
		fmt.Fprintf(cmd.ErrOrStderr(), "no answer from %s (%s): its part is missing\n", u.Broker, api.Printable(u.Reason))
	}
}

// Known writes a number that may be unknown.
func Known(v *float64, format string) string {
	if v == nil {
		return "unknown"
	}
	return fmt.Sprintf(format, *v)
}

// Size writes bytes.
func Size(n float64) string {
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
