package chaos

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/testkit/skew"
)

// The test binary runs itself again inside new namespaces; these variables mark that run.
const (
	insideEnv  = "LOCKSTEP_CHAOS_INSIDE"  // set: this is the one inside
	missingEnv = "LOCKSTEP_CHAOS_MISSING" // why the tests cannot run here
)

// Main is the TestMain of a package with rounds: it runs the test binary again inside new namespaces, and ends
// this process with its exit code. Where these cannot be, the tests are skipped with the reason.
func Main(m *testing.M) {
	if address := os.Getenv(etcdEnv); address != "" {
		os.Exit(runEtcd(address))
	}
	flag.Parse()
	if os.Getenv(insideEnv) != "" || testing.Short() {
		os.Exit(m.Run())
	}
	if err := possible(); err != nil {
		_ = os.Setenv(missingEnv, err.Error())
		os.Exit(m.Run())
	}
	code, err := again()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		code = 1
	}
	os.Exit(code)
}

// possible says what is missing here.
func possible() error {
	for _, tool := range []string{"ip", "nft", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			return err
		}
	}
	if _, err := os.Stat(tunDevice); err != nil {
		return err
	}
	cmd := exec.Command("ip", "link", "add", "probe", "type", "bridge")
	cmd.SysProcAttr = namespaces()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("no bridge in a namespace of our own: %w: %s", err, out)
	}
	return nil
}

// namespaces are new ones for the network and the mounts. A user without root rights
// gets a user namespace, too, in which such namespaces are allowed.
func namespaces() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if uid := os.Getuid(); uid != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return a
}

// again runs this binary inside, with the brokers' binaries built outside.
func again() (code int, err error) {
	env := append(os.Environ(), insideEnv+"=1")
	prebuilt, err := clusters.Prebuilt()
	if err != nil {
		return 1, err
	}
	if prebuilt == "" {
		dir, err := os.MkdirTemp("", "lockstep-chaos-")
		if err != nil {
			return 1, err
		}
		defer os.RemoveAll(dir)
		if os.Getenv(clocksEnv) != "" {
			overlay, err := skew.Overlay(dir, os.Getenv(clusters.OverlayEnv))
			if err != nil {
				return 1, err
			}
			if err := os.Setenv(clusters.OverlayEnv, overlay); err != nil {
				return 1, err
			}
			env = append(env, clocksBuiltEnv+"=1")
		}
		if err := clusters.Build(dir); err != nil {
			return 1, fmt.Errorf("build the brokers: %w", err)
		}
		env = append(env, clusters.BinariesEnv+"="+dir)
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env, cmd.SysProcAttr = env, namespaces()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	signal.Ignore(syscall.SIGQUIT) // `go test` asks for stacks at its timeout: those of the one inside
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode(), nil
	}
	return 0, err
}

func binary(name string) string { return filepath.Join(os.Getenv(clusters.BinariesEnv), name) }

// Inside skips a test that cannot run here.
func Inside(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts broker processes; left out with -short")
	}
	if why := os.Getenv(missingEnv); why != "" {
		env.Missing(t, "network namespaces", why)
	}
}
