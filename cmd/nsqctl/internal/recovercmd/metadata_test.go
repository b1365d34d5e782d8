package recovercmd

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

// TestRecoverMetadataRaisesTheRevision: the lost members may have used revisions that this
// one does not have. A revision is a broker's incarnation and the version in a
// compare-and-swap, so none may be used again.
func TestRecoverMetadataRaisesTheRevision(t *testing.T) {
	const raise = 1000
	dir := t.TempDir()
	_, err := nodefile.Open(vfs.OS, filepath.ToSlash(dir), "lockstep", ident.Node("n3"))
	require.NoError(t, err)
	b := stopped{dataPath: dir, node: "n3", cluster: "lockstep"}
	before := revisionOf(t, dir)
	topics, copied, err := b.recoverMetadata(t.Context(), raise)
	require.NoError(t, err)
	require.Zero(t, topics)
	require.DirExists(t, copied)
	require.GreaterOrEqual(t, revisionOf(t, dir), before+raise)
}

// revisionOf starts the member of a data path, writes a key, stops the member, and returns the
// revision of the write.
func revisionOf(t *testing.T, dataPath string) int64 {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	o := etcd.Options{Name: "n3", Dir: filepath.Join(dataPath, "etcd"), Log: log}
	var err error
	o.ClientAddress, err = freeLoopback()
	require.NoError(t, err)
	o.PeerAddress, err = freeLoopback()
	require.NoError(t, err)
	s, err := etcd.Start(t.Context(), o)
	require.NoError(t, err)
	defer s.Stop()
	require.NoError(t, s.Wait(t.Context()))
	store, err := metadata.DialEtcd(t.Context(), metadata.Config{Endpoints: s.Endpoints()})
	require.NoError(t, err)
	defer store.Close()
	_, revision, err := store.Txn(t.Context(), nil, []metadata.Put{{Key: "/k", Value: []byte("v")}})
	require.NoError(t, err)
	return revision
}
