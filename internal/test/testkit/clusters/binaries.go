package clusters

import (
	"fmt"
	"os"
	"os/exec"
)

// BinariesEnv is the variable with a directory of binaries that a test uses instead of building its own.
const BinariesEnv = "LOCKSTEP_BINARIES"

// OverlayEnv is the variable with a file for the flag -overlay of `go build`, which replaces
// source files. internal/test/verify/mutants sets it, so that the brokers of a test are mutants.
const OverlayEnv = "LOCKSTEP_OVERLAY"

// Prebuilt returns the directory of LOCKSTEP_BINARIES, "" without one. An overlay changes the sources of
// a build: with binaries that are built already it would have no effect, so both together are an error.
func Prebuilt() (dir string, err error) {
	dir = os.Getenv(BinariesEnv)
	if overlay := os.Getenv(OverlayEnv); dir != "" && overlay != "" {
		return "", fmt.Errorf("%s=%s has no effect on the binaries of %s=%s: unset one of them", OverlayEnv, overlay, BinariesEnv, dir)
	}
	return dir, nil
}

// Build compiles nsqd and nsqctl into a directory: with the race detector if LOCKSTEP_RACE is
// set, and with the overlay of LOCKSTEP_OVERLAY.
func Build(dir string) error {
	args := []string{"build", "-o", dir + "/"}
	if os.Getenv("LOCKSTEP_RACE") != "" {
		args = append(args, "-race")
	}
	if overlay := os.Getenv(OverlayEnv); overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	const commands = "github.com/lockstepmq/lockstep/cmd/"
	cmd := exec.Command("go", append(args, commands+"nsqd", commands+"nsqctl")...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}
