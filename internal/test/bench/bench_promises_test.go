package bench

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPromiseProbe: a probe measures each rate of the machine.
func TestPromiseProbe(t *testing.T) {
	m, err := Probe(t.TempDir())
	require.NoError(t, err)
	require.Positive(t, m.PingPong1)
	require.Positive(t, m.Sync3)
	require.Greater(t, m.CRC32C, 1e8)
}
