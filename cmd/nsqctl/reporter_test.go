package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReporterIsNotNoisy: sixty bridges that lose the same broker make one line.
func TestReporterIsNotNoisy(t *testing.T) {
	var out strings.Builder
	r := newReporter(&out)
	for range 60 {
		r.report("n1 is gone")
	}
	r.report("n2 is gone")
	require.Equal(t, "n1 is gone\nn2 is gone\n", out.String())
}
