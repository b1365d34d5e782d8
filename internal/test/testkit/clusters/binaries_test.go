package clusters

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPrebuiltBinariesHaveNoOverlay: a bug in an overlay would not be in the brokers, and a test that
// looks for it would see none.
func TestPrebuiltBinariesHaveNoOverlay(t *testing.T) {
	for _, c := range []struct {
		binaries, overlay string
		refused           bool
	}{{"", "", false}, {"", "overlay.json", false}, {"bin", "", false}, {"bin", "overlay.json", true}} {
		t.Setenv(BinariesEnv, c.binaries)
		t.Setenv(OverlayEnv, c.overlay)
		dir, err := Prebuilt()
		if c.refused {
			require.ErrorContains(t, err, "overlay.json has no effect")
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.binaries, dir)
	}
}
