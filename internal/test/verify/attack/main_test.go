package attack

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
)

// built is the directory of the binaries, set before any test runs.
var built string

// TestMain lets four of the tests that call t.Parallel run at once, also on two processors: they wait for most of
// their time, and run after those that measure. The flag -parallel prevails.
func TestMain(m *testing.M) {
	if os.Getenv(attackerEnv) != "" {
		os.Exit(attackerMain())
	}
	_ = flag.Set("test.parallel", "4")
	flag.Parse()
	if testing.Short() {
		os.Exit(m.Run())
	}
	dir, err := clusters.Prebuilt()
	if built = dir; built != "" {
		goleak.VerifyTestMain(m)
		return
	}
	if err == nil {
		dir, err = os.MkdirTemp("", "lockstep-attack-")
	}
	if err == nil {
		built = dir
		err = clusters.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "attack: build the binaries:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

func program(name string) string { return filepath.Join(built, name) }
