package devcmd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBenchNamesTheFault: a wrong use is refused before a broker is started.
func TestBenchNamesTheFault(t *testing.T) {
	for want, args := range map[string][]string{
		"--limit 1m0s must be less than --timeout": {"bench", "--limit", "1m"},
		"--encrypted needs --cluster":              {"bench", "--encrypted"},
		"--max-steal 101: a percentage":            {"bench", "--max-steal", "101"},
	} {
		_, err := run(t, time.Minute, args...)
		require.ErrorContains(t, err, want)
	}
}
