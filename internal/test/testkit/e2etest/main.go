package e2etest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// Binaries are built once for all tests of this package.
type Binaries struct{ dir string }

// Path is the file of a binary.
func (b Binaries) Path(name string) string { return filepath.Join(b.dir, name) }

// Built is set before any test runs and never changed.
var Built Binaries

// Main runs the tests of a package of internal/test/verify/e2e: TestMain is nothing else.
// The tests that call t.Parallel wait for most of their time, so that more of them run at once than there are
// processors; the flag -parallel prevails.
func Main(m *testing.M) {
	_ = flag.Set("test.parallel", "3")
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
		Built = Binaries{dir}
		goleak.VerifyTestMain(m)
		return
	}
	if err == nil {
		dir, err = os.MkdirTemp("", "lockstep-e2e-")
	}
	if err == nil {
		Built = Binaries{dir}
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

// Rounds is how often a test repeats itself.
func Rounds(usual, many int) int {
	if env.Long() {
		return many
	}
	return usual
}

// SlackFactor is what a promised duration is multiplied by before it is asserted:
// machines that test are busy. LOCKSTEP_SLACK, set before any test runs.
var SlackFactor = 3.0

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
	SlackFactor = n
	return nil
}

// Slack is how long a promised time may last on the machine that tests.
func Slack(promised time.Duration) time.Duration {
	return time.Duration(SlackFactor * float64(promised))
}

// Processes skips a test that needs brokers.
func Processes(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts broker processes; left out with -short")
	}
}
