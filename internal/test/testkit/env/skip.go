package env

import (
	"fmt"
	"os"
	"testing"
)

// The variables of a run by the build server.
const (
	ciEnv    = "LOCKSTEP_CI"    // if set, no requirement may be missing
	skipsEnv = "LOCKSTEP_SKIPS" // a file with a line for each skipped test
)

// Missing skips a test that this machine cannot run. On the build server (LOCKSTEP_CI) it
// fails the test: a promise that is untested there is untested everywhere.
func Missing(t testing.TB, need string, why any) {
	t.Helper()
	if os.Getenv(ciEnv) != "" {
		t.Fatalf("needs %s: %v", need, why)
	}
	Skip(t, fmt.Sprintf("needs %s: %v", need, why))
}

// Skip skips a test that is part of a longer run, and appends its name to the file
// LOCKSTEP_SKIPS. Only -short skips without a line.
func Skip(t testing.TB, why string) {
	t.Helper()
	if file := os.Getenv(skipsEnv); file != "" {
		if err := note(file, t.Name()+": "+why+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	t.Skip(why)
}

func note(file, line string) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
