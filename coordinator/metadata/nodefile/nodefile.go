// Package nodefile reads and writes DIR/node.json: the name of the broker and of its cluster, the boot counter, and the
// properties that distinguish the data path from an older copy of itself. It also locks the data path for one process.
//
// It decides nothing: coordinator/metadata/etcd/lifecycle decides whether a member may vote, and coordinator whether replicas
// count as in sync.
//
// # Invariants
//
//  1. The file is replaced as a whole and durably. Update returns after that.
//  2. The boot counter is raised here before any other broker receives it, and never falls below a value that another
//     broker received. If another broker has seen a higher counter, or another start at the same counter, this data
//     path is an older copy.
//  3. The lock ends with its process. It belongs to the directory: if an operator replaces the directory, the next process
//     locks another file, and both run. Holding.Check detects that.
//
// # Locks
//
// File.mu is held over the write and the sync of the file. It is a leaf.
package nodefile

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"sync"

	"github.com/gofrs/flock"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd/lifecycle"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
)

// name is the name of the file in the data path.
const name = "node.json"

// Record is the content of the file. On disk, by name (JSON): fields are added, never renamed.
type Record struct {
	V       int        `json:"v"`
	Cluster string     `json:"cluster,omitempty"`
	Node    ident.Node `json:"node"`
	Boot    int64      `json:"boot"` // the boot counter, raised at each start, and regularly while the broker runs
	// Starts are the latest starts on this disk.
	Starts []lifecycle.StartRecord `json:"starts,omitempty"`
	// Clean means that the last run ended as planned, with all data on the disk.
	Clean bool `json:"clean,omitempty"`
	// Disk is the id of this data path's copy of the embedded etcd member.
	Disk lifecycle.DiskID `json:"disk,omitempty"`
	// Marks are the properties of DIR/node.mark at the last start, or when an operator last vouched for the data path.
	Marks Marks `json:"marks,omitzero"`
	// Doubted means that a start detected that the data path is a copy, and did not complete.
	Doubted bool `json:"doubted,omitempty"`
	// Foundation is the founding of the cluster that this disk has accepted.
	Foundation *lifecycle.Foundation `json:"foundation,omitempty"`
	// Started means that the disk has held the log of the embedded etcd's member.
	Started bool `json:"started,omitempty"`
	// Seen is the newest state of the other brokers that this broker has seen.
	Seen map[string]lifecycle.DiskState `json:"seen,omitempty"`
}

// State returns the state of the disk.
func (r Record) State() lifecycle.DiskState {
	return lifecycle.DiskState{Disk: r.Disk, Boot: r.Boot, Starts: r.Starts}
}

// NewDisk returns a random id for a data path.
func NewDisk() lifecycle.DiskID { return lifecycle.DiskID(rand.Text()) }

// File is the node file of an open data path. All methods may be called from any goroutine.
type File struct {
	fs  vfs.FS
	dir string
	mu  struct {
		sync.Mutex
		record Record
	}
}

// Open reads the node file of a data path. Without a file it returns an empty record with boot counter 0, which the
// first Update writes. It refuses the path of another broker, because two brokers with one name, or one broker with two
// names, would lose data. It also refuses the path of another cluster, unless cluster is "".
func Open(fs vfs.FS, dir, cluster string, self ident.Node) (*File, error) {
	f := &File{fs: fs, dir: dir}
	r, err := f.read()
	switch {
	case errors.Is(err, vfs.ErrNotExist):
		r = Record{Node: self}
	case err != nil:
		return nil, err
	case r.Node != self:
		return nil, fmt.Errorf("data path %s belongs to node %q, this is %q", dir, r.Node, self)
	case r.Cluster != "" && cluster != "" && r.Cluster != cluster:
		return nil, fmt.Errorf("data path %s belongs to a broker of cluster %q, this is %q", dir, r.Cluster, cluster)
	}
	r.V = 1
	if cluster != "" {
		r.Cluster = cluster
	}
	f.mu.record = r
	return f, nil
}

// Record returns the current content. The caller must not change its maps and pointers.
func (f *File) Record() Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.record
}

// Update changes the content and returns when it is durable. After an error the old content stays. change must replace maps
// and pointers, not write into them.
func (f *File) Update(change func(r *Record)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.mu.record
	change(&r)
	if err := f.write(r); err != nil {
		return err
	}
	f.mu.record = r
	return nil
}

// Observe records the latest states of the other brokers, which those brokers may request when they restart. It writes
// only changes.
func (f *File) Observe(states map[string]lifecycle.DiskState) error {
	if reflect.DeepEqual(f.Record().Seen, states) {
		return nil
	}
	return f.Update(func(r *Record) { r.Seen = states })
}

func (f *File) read() (r Record, err error) {
	content, err := vfs.ReadFile(f.fs, path.Join(f.dir, name))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(content, &r); err != nil {
		return r, fmt.Errorf("read %s: %w: the file is damaged; without the file this data path counts as an old copy, and the broker copies its data from other brokers",
			path.Join(f.dir, name), err)
	}
	return r, nil
}

func (f *File) write(r Record) error {
	if err := f.fs.MkdirAll(f.dir); err != nil {
		return err
	}
	at := path.Join(f.dir, name)
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	file, err := f.fs.Create(at + ".tmp")
	if err != nil {
		return err
	}
	_, err = file.WriteAt(content, 0)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", at, err)
	}
	if err := f.fs.Rename(at+".tmp", at); err != nil {
		return err
	}
	return f.fs.SyncDir(f.dir)
}

// ErrInUse means that another process holds the lock.
var ErrInUse = errors.New("another process uses it")

// Lock locks an existing data path. Errors: ErrInUse, or an error of the file system.
func Lock(dir string) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(dir, "nsqd.lock"))
	ok, err := lock.TryLock()
	if err == nil && !ok {
		err = ErrInUse
	}
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	return lock, nil
}

// errReplaced means that the data path no longer contains the files that this process has open. All that it writes is lost
// with them.
var errReplaced = errors.New("the data path was removed, or another one put in its place, while this process used it")

// Holding is the set of files and folders that a process has open at its locked data path.
type Holding struct {
	dir   string
	infos map[string]fs.FileInfo
}

// Hold records the lock and the named entries of the data path.
func Hold(lock *flock.Flock, names ...string) (Holding, error) {
	h := Holding{dir: filepath.Dir(lock.Path()), infos: map[string]fs.FileInfo{}}
	info, err := lock.Stat()
	h.infos[filepath.Base(lock.Path())] = info
	for _, name := range names {
		if err == nil {
			h.infos[name], err = os.Stat(filepath.Join(h.dir, name))
		}
	}
	return h, err
}

// Check returns errReplaced if an entry is gone or was replaced.
func (h Holding) Check() error {
	for name, info := range h.infos {
		now, err := os.Stat(filepath.Join(h.dir, name))
		if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(info, now) {
			return fmt.Errorf("%w: %s", errReplaced, filepath.Join(h.dir, name))
		}
	}
	return nil
}
