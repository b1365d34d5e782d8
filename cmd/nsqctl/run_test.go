package main

import (
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

func TestMain(m *testing.M) {
	silence = wait.Limit // in these tests a broker that is gone closes its connections
	m.Run()
}

// run runs one command line, at most for limit.
func run(t *testing.T, limit time.Duration, args ...string) (out string, err error) {
	t.Helper()
	return clitest.Run(t, newRoot(), limit, args...)
}
