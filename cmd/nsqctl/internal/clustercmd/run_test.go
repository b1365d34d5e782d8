package clustercmd

import (
	"io"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

func TestMain(m *testing.M) {
	healthTimeout = wait.Limit // no broker is silent in the tests
	m.Run()
}

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

// text is the output of a print function.
func text(print func(w io.Writer)) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	print(w)
	_ = w.Flush()
	return b.String()
}
