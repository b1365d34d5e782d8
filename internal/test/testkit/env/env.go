// Package env reads the environment variables that configure a test run: its length, its
// seeds, and the mutant in the test binary. Only tests and the tool that runs tests with
// mutants import it.
//
// # Invariants
//
//  1. A variable that is not set leaves the test's own value.
//  2. A value that is not a number fails the test; no value is ignored.
package env

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// Long reports whether LOCKSTEP_LONG asks for the long form of a test.
func Long() bool { return os.Getenv("LOCKSTEP_LONG") != "" }

// MutantEnv is the variable with the name of the mutant (internal/test/verify/mutants) in a test binary.
const MutantEnv = "LOCKSTEP_MUTANT"

// Mutant returns the name of the mutant in this test binary, "" without one. Only the checks
// of a test judge a mutant: with a mutant, the assertions of the code itself are off.
func Mutant() string { return os.Getenv(MutantEnv) }

// Number reads a variable that holds a whole number, 0 or more; otherwise is the value if it is not set.
func Number[T ~int | ~int64 | ~uint64](t testing.TB, name string, otherwise T) T {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || int64(T(n)) != n || T(n) < 0 {
		t.Fatalf("%s=%s is not a number, 0 or more", name, text)
	}
	return T(n)
}

// Within returns a promised duration times LOCKSTEP_SLACK, for tests that measure it: a busy
// machine, or the race detector, takes longer. Without the variable it returns the duration.
func Within(t testing.TB, promised time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv("LOCKSTEP_SLACK")
	if text == "" {
		return promised
	}
	factor, err := strconv.ParseFloat(text, 64)
	if err != nil || !(factor > 0) {
		t.Fatalf("LOCKSTEP_SLACK=%s is no factor", text)
	}
	return time.Duration(factor * float64(promised))
}
