package nodefile_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd/lifecycle"
	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
)

func TestDataPathBelongsToOneBroker(t *testing.T) {
	fs := vfstest.NewMemory()
	open := func(cluster string, node ident.Node) (*nodefile.File, error) {
		return nodefile.Open(fs, "/data", cluster, node)
	}
	f, err := open("", "n1")
	require.NoError(t, err)
	require.Zero(t, f.Record().Boot)
	require.NoError(t, f.Update(func(r *nodefile.Record) { r.Boot = 5 }))
	f, err = open("orders", "n1")
	require.NoError(t, err, "the cluster was not named yet")
	require.EqualValues(t, 5, f.Record().Boot)
	_, err = open("", "n2")
	require.ErrorContains(t, err, `belongs to node "n1"`)

	require.NoError(t, f.Update(func(r *nodefile.Record) { r.Boot = 6 }))
	_, err = open("order", "n1")
	require.ErrorContains(t, err, `belongs to a broker of cluster "orders", this is "order"`)
}

// TestFailedUpdateChangesNothing: content that could not be written does not count.
func TestFailedUpdateChangesNothing(t *testing.T) {
	var fail error
	f, err := nodefile.Open(vfstest.Wrap(vfstest.NewMemory(), func(vfstest.Op) error { return fail }), "/data", "", "n1")
	require.NoError(t, err)
	require.NoError(t, f.Update(func(r *nodefile.Record) { r.Boot = 1 }))
	fail = os.ErrPermission
	require.ErrorIs(t, f.Update(func(r *nodefile.Record) { r.Boot = 2 }), os.ErrPermission)
	require.EqualValues(t, 1, f.Record().Boot)
}

// TestUpdateIsDurable: after a power cut the file has the content of the last Update.
func TestUpdateIsDurable(t *testing.T) {
	fs := vfstest.NewMemory()
	require.NoError(t, vfs.MakeDir(fs, "/data"))
	f, err := nodefile.Open(fs, "/data", "", "n1")
	require.NoError(t, err)
	require.NoError(t, f.Update(func(r *nodefile.Record) { r.Boot = 7 }))
	again, err := nodefile.Open(fs.CrashClone(rand.New(rand.NewPCG(1, 1))), "/data", "", "n1")
	require.NoError(t, err)
	require.EqualValues(t, 7, again.Record().Boot)
}

// TestGoldenNodeFile pins the text of node.json with every field set.
func TestGoldenNodeFile(t *testing.T) {
	fs := vfstest.NewMemory()
	f, err := nodefile.Open(fs, "/data", "orders", "n1")
	require.NoError(t, err)
	record := nodefile.Record{
		V: 1, Cluster: "orders", Node: "n1", Boot: 7, Starts: []lifecycle.StartRecord{{Boot: 6, ID: "s"}}, Clean: true, Disk: "d1", Doubted: true, Started: true,
		Marks:      nodefile.Marks{Inode: 1, Born: 2, Device: 3, Machine: "m"},
		Foundation: &lifecycle.Foundation{ID: "f1", Disks: map[string]lifecycle.DiskID{"n1": "d1"}},
		Seen:       map[string]lifecycle.DiskState{"n2": {Disk: "d2", Boot: 4, Starts: []lifecycle.StartRecord{{Boot: 3, ID: "t"}}}},
	}
	require.NoError(t, f.Update(func(r *nodefile.Record) { *r = record }))
	file, err := fs.Open("/data/node.json")
	require.NoError(t, err)
	size, err := file.Size()
	require.NoError(t, err)
	content := make([]byte, size)
	_, err = file.ReadAt(content, 0)
	require.NoError(t, err)
	require.Equal(t, `{"v":1,"cluster":"orders","node":"n1","boot":7,"starts":[{"boot":6,"id":"s"}],"clean":true,"disk":"d1","marks":{"inode":1,"born":2,"device":3,"machine":"m"},"doubted":true,"foundation":{"id":"f1","founders":null,"disks":{"n1":"d1"}},"started":true,"seen":{"n2":{"disk":"d2","boot":4,"starts":[{"boot":3,"id":"t"}]}}}`, string(content))
	again, err := nodefile.Open(fs, "/data", "orders", "n1")
	require.NoError(t, err)
	require.Equal(t, record, again.Record())
}

// TestObserve: a broker that only began another start is news, and what is known is not written again.
func TestObserve(t *testing.T) {
	writes := 0
	f, err := nodefile.Open(vfstest.Wrap(vfstest.NewMemory(), func(o vfstest.Op) error {
		if o.Call == vfstest.CallRename {
			writes++
		}
		return nil
	}), "/data", "", "n1")
	require.NoError(t, err)
	seen := func(id string) map[string]lifecycle.DiskState {
		return map[string]lifecycle.DiskState{"n2": {Disk: "d2", Boot: 4, Starts: []lifecycle.StartRecord{{Boot: 3, ID: id}}}}
	}
	for _, id := range []string{"s", "s", "t", "t"} {
		require.NoError(t, f.Observe(seen(id)))
		require.Equal(t, seen(id), f.Record().Seen)
	}
	require.Equal(t, 2, writes)
}

// TestMarksTellACopy: a copy of the files, a lost record and a recorded doubt mean a copy; the disk
// itself does not.
func TestMarksTellACopy(t *testing.T) {
	dir := t.TempDir()
	marks, err := nodefile.Mark(dir)
	require.NoError(t, err)
	record := nodefile.Record{Disk: "d", Boot: 3, Marks: marks}
	doubt := func(dir string, r nodefile.Record) lifecycle.Doubt {
		d, err := nodefile.CheckMarks(dir, r, true)
		require.NoError(t, err)
		return d
	}
	require.Equal(t, lifecycle.DoubtNone, doubt(dir, record))
	again, err := nodefile.Mark(dir)
	require.NoError(t, err)
	require.Equal(t, marks, again, "the marks stay")

	elsewhere := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.CopyFS(elsewhere, os.DirFS(dir)))
	require.Equal(t, lifecycle.DoubtCopied, doubt(elsewhere, record))
	require.Equal(t, lifecycle.DoubtCopied, doubt(t.TempDir(), record), "the mark was not copied")

	moved := record
	moved.Marks.Device++
	require.Equal(t, lifecycle.DoubtMoved, doubt(dir, moved))
	moved = record
	moved.Marks.Machine = "another"
	require.Equal(t, lifecycle.DoubtMoved, doubt(dir, moved))

	record.Doubted = true
	require.Equal(t, lifecycle.DoubtCopied, doubt(dir, record))
	require.Equal(t, lifecycle.DoubtCopied, doubt(dir, nodefile.Record{}), "a log without its record")
}
