package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

// nodeFile is DIR/node.json: whose data path this is, and its boot counter, which
// goes up at each start and once a minute. It is replaced as a whole.
type nodeFile struct {
	fs      vfs.FS
	dir     string
	cluster string // "" = any
}

type nodeRecord struct {
	V       int        `json:"v"`
	Cluster string     `json:"cluster,omitempty"` // "": written by an older build
	Node    ident.Node `json:"node"`
	Boot    int64      `json:"boot"`
}

// Boots is the boot counter of a data path; 0 for a new one. A path of another
// broker, or of another cluster unless that is "", is an error.
func Boots(fs vfs.FS, dir, cluster string, self ident.Node) (int64, error) {
	return nodeFile{fs: fs, dir: dir, cluster: cluster}.load(self)
}

// load gives the boot counter, 0 in a new path. A path of another broker is
// refused: two brokers of one name, or one broker of two, would lose data. So is
// one of another cluster, in which its messages are nobody's.
func (f nodeFile) load(self ident.Node) (boot int64, err error) {
	name := path.Join(f.dir, "node.json")
	file, err := f.fs.Open(name)
	if errors.Is(err, vfs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return 0, err
	}
	content := make([]byte, size)
	if _, err := file.ReadAt(content, 0); err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	var r nodeRecord
	if err := json.Unmarshal(content, &r); err != nil {
		return 0, fmt.Errorf("read %s: %w: it is damaged; without it this data path is an old copy, which is filled anew by other brokers", name, err)
	}
	if r.Node != self {
		return 0, fmt.Errorf("data path %s belongs to node %q, this is %q", f.dir, r.Node, self)
	}
	if r.Cluster != "" && f.cluster != "" && r.Cluster != f.cluster {
		return 0, fmt.Errorf("data path %s belongs to a broker of cluster %q, this is %q", f.dir, r.Cluster, f.cluster)
	}
	return r.Boot, nil
}

// save writes the counter durably.
func (f nodeFile) save(self ident.Node, boot int64) error {
	if err := f.fs.MkdirAll(f.dir); err != nil {
		return err
	}
	name := path.Join(f.dir, "node.json")
	content, err := json.Marshal(nodeRecord{V: 1, Cluster: f.cluster, Node: self, Boot: boot})
	if err != nil {
		return err
	}
	file, err := f.fs.Create(name + ".tmp")
	if err != nil {
		return err
	}
	_, err = file.WriteAt(content, 0)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := f.fs.Rename(name+".tmp", name); err != nil {
		return err
	}
	return f.fs.SyncDir(f.dir)
}
