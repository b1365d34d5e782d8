package cli

import (
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
)

// newRoot has the commands of profiles, and one that asks a broker.
func newRoot() *cobra.Command {
	t := &Target{}
	return NewRoot(t, &cobra.Command{Use: "stats", RunE: func(cmd *cobra.Command, _ []string) error {
		return t.GetAny(cmd.Context(), "/stats", nil, new(any))
	}})
}

// run runs one command line, at most for limit.
func run(t *testing.T, limit time.Duration, args ...string) (out string, err error) {
	t.Helper()
	return clitest.Run(t, newRoot(), limit, args...)
}
