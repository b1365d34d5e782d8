package etcdserver

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"
)

// The database is a bbolt file: its first two pages are the same record, written in turn.
// In the machine's own order, in bytes: 16 magic, 24 page size, 56 number of pages.
const (
	boltMagic     = 0xED0CDAED
	boltMetaBytes = 64
	boltMinPages  = 2
)

// checkFiles looks for damage to the member's directory that etcd would not survive, or
// not notice. Its log is whole or not: that etcd says itself.
func checkFiles(dir string) error {
	db := filepath.Join(dir, memberDir, "snap", "db")
	short, err := cutShort(db)
	switch {
	case err != nil:
		return nil // not there, or not readable: etcd knows what to say
	case short:
		return fmt.Errorf("%w: %s was cut short", ErrDamaged, db) // it is mapped: reading it would be a fault of memory
	case !Exists(dir) && written(db):
		// etcd would begin a new log, and drop what it is told until that is as long as the
		// old one was.
		return fmt.Errorf("%w: the log beside %s is gone", ErrDamaged, db)
	}
	return nil
}

// cutShort reports whether a database has fewer pages than it says.
func cutShort(db string) (bool, error) {
	f, err := os.Open(db)
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 { // as bbolt makes it first
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

// written reports whether a log was ever applied to a database.
func written(db string) bool {
	b := backend.NewDefaultBackend(zap.NewNop(), db)
	defer b.Close()
	index, _ := schema.ReadConsistentIndex(b.ReadTx())
	return index > 0
}
