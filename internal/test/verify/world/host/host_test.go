package host

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWorlds: some short worlds have no violation, and a seed repeats what its clients saw, byte for byte and at the same times.
func TestWorlds(t *testing.T) {
	program, err := Build(t.TempDir())
	require.NoError(t, err)
	for _, seed := range []uint64{2, 6, 21} {
		r, err := Run(t.Context(), program, seed, nil)
		require.NoError(t, err)
		require.Empty(t, r.Violations, "%s\n%s", r, r.Tale(nil))
		require.NotZero(t, r.OK)
		require.NotZero(t, r.Deliveries)
		again, err := Run(t.Context(), program, seed, nil)
		require.NoError(t, err)
		require.Equal(t, r, again, "seed %d does not repeat", seed)
	}
}

// TestPlain: the headers of the simulated clock do not reach the reader.
func TestPlain(t *testing.T) {
	head := func(n byte) string { return "\x00\x00PB\x01\x02\x03\x04\x05\x06\x07\x08\x00\x00\x00" + string(n) }
	require.Equal(t, "one two", string(plain([]byte(head(4)+"one "+head(3)+"two"))))
	require.Equal(t, "no headers", string(plain([]byte("no headers"))))
	require.Empty(t, plain(nil))
}
