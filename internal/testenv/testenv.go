// Package testenv reads what a run of the tests is told by its environment: how
// long it is to be, and with which seeds. Tests alone import it.
//
// 1. What is not set is as the test has it.
// 2. A value that cannot be read fails the test; none is ignored.
package testenv

import (
	"os"
	"strconv"
	"testing"
)

// Long reports whether LOCKSTEP_LONG asks for the long form.
func Long() bool { return os.Getenv("LOCKSTEP_LONG") != "" }

// Number reads a variable that holds a whole number.
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
