package benchcmd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
)

// TestErrorsNameTheFault: a wrong use is refused before a broker is started.
func TestErrorsNameTheFault(t *testing.T) {
	for want, args := range map[string][]string{
		"--limit 1m0s must be less than --timeout": {"bench", "--limit", "1m"},
		"--encrypted needs --cluster":              {"bench", "--encrypted"},
		"--max-steal 101: a percentage":            {"bench", "--max-steal", "101"},
	} {
		target := &cli.Target{}
		_, err := clitest.Run(t, cli.NewRoot(target, NewBench(target)), time.Minute, args...)
		require.ErrorContains(t, err, want)
	}
}
