package clustertest

import (
	"os"
	"os/exec"

	"github.com/lockstepmq/lockstep/internal/mutation"
)

// BinariesEnv names a directory with binaries that are to be used as they are.
const BinariesEnv = "LOCKSTEP_BINARIES"

// Build makes nsqd and nsqctl in a directory: with the race detector if
// LOCKSTEP_RACE is set, and with the mutations that this test binary has.
func Build(dir string) error {
	args := []string{"build", "-o", dir + "/"}
	if os.Getenv("LOCKSTEP_RACE") != "" {
		args = append(args, "-race")
	}
	if mutation.Enabled {
		args = append(args, "-tags", "mutation")
	}
	const commands = "github.com/lockstepmq/lockstep/cmd/"
	cmd := exec.Command("go", append(args, commands+"nsqd", commands+"nsqctl")...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}
