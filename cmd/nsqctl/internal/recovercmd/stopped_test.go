package recovercmd

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
)

// TestTheNodeFileIsReadUnderTheLock: a broker that is just stopping writes its node file. A record that was read
// before its lock was free would be written over that.
func TestTheNodeFileIsReadUnderTheLock(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "node.json"), []byte("not yet whole"), 0o600))
	running, err := nodefile.Lock(dir)
	require.NoError(t, err)
	b := stopped{dataPath: dir, node: "n3", cluster: "lockstep"}
	_, _, err = b.recoverMetadata(t.Context(), 1)
	require.ErrorContains(t, err, "still runs")
	require.ErrorContains(t, b.vouch(), "still runs")

	require.NoError(t, running.Unlock())
	require.ErrorContains(t, b.vouch(), "node.json")
	again, err := nodefile.Lock(dir)
	require.NoError(t, err, "a refused command releases the lock")
	require.NoError(t, again.Unlock())
}
