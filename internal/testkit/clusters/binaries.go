package clusters

import (
	"os"
	"os/exec"
)

// BinariesEnv is the variable with a directory of binaries that a test uses instead of building its own.
const BinariesEnv = "LOCKSTEP_BINARIES"

// OverlayEnv is the variable with a file for the flag -overlay of `go build`, which replaces
// source files. internal/verify/mutants sets it, so that the brokers of a test are mutants.
const OverlayEnv = "LOCKSTEP_OVERLAY"

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
