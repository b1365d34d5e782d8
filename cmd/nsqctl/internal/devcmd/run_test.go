package devcmd

import (
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
)

// newRoot has the commands of the package.
func newRoot() *cobra.Command {
	t := &cli.Target{}
	return cli.NewRoot(t, Commands(t)...)
}

// run runs one command line, at most for limit.
func run(t *testing.T, limit time.Duration, args ...string) (out string, err error) {
	t.Helper()
	return clitest.Run(t, newRoot(), limit, args...)
}
