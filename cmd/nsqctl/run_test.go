package main

import (
	"testing"
	"time"
)

// run runs one command line, at most for limit.
func run(t *testing.T, limit time.Duration, args ...string) (out string, err error) {
	t.Helper()
	return runLine(t, newRoot(), limit, args...)
}

// begin starts one command line.
func begin(t *testing.T, args ...string) *running {
	t.Helper()
	return beginLine(t, newRoot(), args...)
}
