package etcd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/pkg/v3/pbutil"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// memberDir is the subdirectory with a member's files.
const memberDir = "member"

// makeMember creates the directory of a member that was added to a cluster and has not run yet: an empty log with its
// identity, as etcd itself leaves it if it ends right after joining. The log is created atomically.
//
// It is not safe to leave this to etcd. etcd takes the identity from the first member that answers, and that member may
// have been suspended since before the old member at this address was removed. A leader that was suspended as long then
// sends its commit index to an empty log, and etcd panics.
func makeMember(dir string, cluster, id uint64) error {
	path := filepath.Join(dir, memberDir)
	err := os.RemoveAll(path) // left over from a start that failed before the log was complete
	if err == nil {
		err = os.MkdirAll(path, privateDir)
	}
	if err != nil {
		return fmt.Errorf("etcd: create the member's directory: %w", err)
	}
	identity, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: &id, ClusterID: &cluster})
	if err != nil {
		return fmt.Errorf("etcd: encode the member's identity: %w", err)
	}
	log, err := wal.Create(zap.NewNop(), logDir(dir), identity)
	if err != nil {
		return fmt.Errorf("etcd: create the member's log: %w", err)
	}
	return log.Close()
}

func logDir(dir string) string { return filepath.Join(dir, memberDir, "wal") }

func databasePath(dir string) string { return filepath.Join(dir, memberDir, "snap", "db") }

// Copy copies the directory of a member to aside, which must not exist. The member's broker must not run. It omits the socket
// that a killed broker leaves.
func Copy(aside, dir string) error { return os.CopyFS(aside, withoutSockets{os.DirFS(dir)}) }

// withoutSockets is a file tree without its sockets, devices and links.
type withoutSockets struct{ fs.FS }

func (w withoutSockets) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(w.FS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() && !e.Type().IsRegular() }), err
}

// followTLS changes the scheme of the members' stored addresses to that of the options: TLS may have been switched on or off
// since they were written. Only a majority could change them, and none can form while the members use the wrong scheme.
func (o Options) followTLS(log *zap.Logger) error {
	path := databasePath(o.Dir)
	if _, err := os.Stat(path); os.IsNotExist(err) { // a new member
		return nil
	}
	be := backend.NewDefaultBackend(log, path, backend.WithMmapSize(quotaBytes))
	defer be.Close()
	stored := schema.NewMembershipBackend(log, be)
	stored.MustCreateBackendBuckets()
	members, _ := stored.MustReadMembersFromBackend()
	for _, m := range members {
		changed := false
		for i, address := range m.PeerURLs {
			u, err := url.Parse(address)
			if err != nil {
				return fmt.Errorf("etcd: address of member %s: %w", m.Name, err)
			}
			if u.Scheme != o.TLS.scheme() {
				u.Scheme, changed = o.TLS.scheme(), true
				m.PeerURLs[i] = u.String()
			}
		}
		if changed {
			o.Log.Infof("the member of the embedded etcd %s is now reached at %v", m.Name, m.PeerURLs)
			stored.MustSaveMemberToBackend(m)
		}
	}
	return nil
}

func (t TLS) scheme() string {
	if t == (TLS{}) {
		return "http"
	}
	return "https"
}

// The database is a bbolt file. Its first two pages are copies of the same record, written alternately, in the machine's byte
// order. Offsets in bytes: 16 magic, 24 page size, 56 number of pages.
const (
	boltMagic     = 0xED0CDAED
	boltMetaBytes = 64
	boltMinPages  = 2
)

// lockTimeout bounds the wait for another process that has the database open.
const lockTimeout = time.Second

// checkFiles finds damage to the member's directory that would crash etcd, or that etcd would not notice.
func checkFiles(dir string) error {
	db := databasePath(dir)
	short, err := cutShort(db)
	if err != nil {
		return nil // missing or not readable: etcd reports that
	}
	if short {
		return fmt.Errorf("%w: %s was cut short", ErrDamaged, db) // the file is memory-mapped: a read beyond its end is a memory fault
	}
	applied := appliedIndex(db)
	if !Exists(dir) && applied > 0 {
		// etcd would begin a new log, and discard all entries until it is as long as the old one.
		return fmt.Errorf("%w: the log beside %s is gone", ErrDamaged, db)
	}
	if !Exists(dir) {
		return nil
	}
	// etcd repairs a log that ends within a record, as after a power cut. But an entry in the database was synced to
	// the log first.
	last, err := lastIndex(logDir(dir))
	if err == nil && last < applied {
		err = fmt.Errorf("%w: the log in %s ends at entry %d, the database has entry %d: its end is gone", ErrDamaged, logDir(dir), last, applied)
	}
	return err
}

// lastIndex returns the index of a log's last entry, or of the snapshot at its beginning. It reads only the last file: the
// name of a file has the index of its first entry.
func lastIndex(dir string) (last uint64, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(names) == 0 {
		return 0, fmt.Errorf("%w: no file of a log in %s", ErrDamaged, dir)
	}
	name := slices.Max(names)
	var sequence, first uint64
	if _, err := fmt.Sscanf(filepath.Base(name), "%016x-%016x.wal", &sequence, &first); err != nil {
		return 0, fmt.Errorf("%w: %s is not the name of a log file", ErrDamaged, name)
	}
	if first > 0 {
		last = first - 1
	}
	f, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	log := wal.NewDecoder(fileutil.NewFileReader(f))
	record := &walpb.Record{}
	for err = log.Decode(record); err == nil; err = log.Decode(record) {
		switch record.GetType() {
		case wal.CrcType:
			log.UpdateCRC(record.GetCrc())
		case wal.EntryType:
			last = wal.MustUnmarshalEntry(record.Data).GetIndex()
		case wal.SnapshotType:
			var s walpb.Snapshot
			pbutil.MustUnmarshalMessage(&s, record.Data)
			last = max(last, s.GetIndex())
		}
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, explainEnd(fmt.Errorf("%s: %w", name, err))
	}
	return last, nil
}

// cutShort reports whether a database has fewer pages than its record says.
func cutShort(db string) (bool, error) {
	f, err := os.Open(db)
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 { // the state in which bbolt creates it
		return false, err
	}
	var meta [boltMetaBytes]byte
	if _, err := f.ReadAt(meta[:], 0); err != nil {
		return false, err
	}
	if binary.NativeEndian.Uint32(meta[16:]) != boltMagic {
		return false, nil
	}
	pageSize, pages := binary.NativeEndian.Uint32(meta[24:]), binary.NativeEndian.Uint64(meta[56:])
	return info.Size()/int64(max(pageSize, 1)) < int64(max(pages, boltMinPages)), nil
}

// appliedIndex returns the index of the last entry that is applied to a database; 0 if there is none, or if the database
// cannot be read, which etcd reports itself.
func appliedIndex(path string) (index uint64) {
	db, err := bbolt.Open(path, 0, &bbolt.Options{ReadOnly: true, Timeout: lockTimeout})
	if err != nil {
		return 0
	}
	defer db.Close()
	_ = db.View(func(tx *bbolt.Tx) error {
		if b := tx.Bucket(schema.Meta.Name()); b != nil {
			if v := b.Get(schema.MetaConsistentIndexKeyName); len(v) == 8 {
				index = binary.BigEndian.Uint64(v)
			}
		}
		return nil
	})
	return index
}
