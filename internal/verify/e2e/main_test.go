package e2e

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/internal/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/testkit/env"
)

// binaries are built once for all tests of this package.
type binaries struct{ dir string }

func (b binaries) path(name string) string { return filepath.Join(b.dir, name) }

// built is set before any test runs and never changed.
var built binaries

func TestMain(m *testing.M) {
	flag.Parse()
	if err := readSlack(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	if testing.Short() {
		os.Exit(m.Run())
	}
	dir, err := clusters.Prebuilt()
	if dir != "" {
		built = binaries{dir}
		goleak.VerifyTestMain(m)
		return
	}
	if err == nil {
		dir, err = os.MkdirTemp("", "lockstep-e2e-")
	}
	if err == nil {
		built = binaries{dir}
		err = clusters.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e: build the binaries:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// rounds is how often a test repeats itself.
func rounds(usual, many int) int {
	if env.Long() {
		return many
	}
	return usual
}

// slackFactor is what a promised duration is multiplied by before it is asserted:
// machines that test are busy. LOCKSTEP_SLACK, set before any test runs.
var slackFactor = 3.0

func readSlack() error {
	text := os.Getenv("LOCKSTEP_SLACK")
	if text == "" {
		return nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err == nil && !(n > 0) {
		err = strconv.ErrRange
	}
	if err != nil {
		return fmt.Errorf("LOCKSTEP_SLACK=%s is no factor: %w", text, err)
	}
	slackFactor = n
	return nil
}

func slack(promised time.Duration) time.Duration {
	return time.Duration(slackFactor * float64(promised))
}

// processes skips a test that needs brokers.
func processes(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts broker processes; left out with -short")
	}
}
