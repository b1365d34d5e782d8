package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReporterIsNotNoisy: sixty bridges that lose the same broker make one line.
func TestReporterIsNotNoisy(t *testing.T) {
	var out strings.Builder
	r := NewReporter(&out)
	for range 60 {
		r.Report("n1 is gone")
	}
	r.Report("n2 is gone")
	require.Equal(t, "n1 is gone\nn2 is gone\n", out.String())
}
