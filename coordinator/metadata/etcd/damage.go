package etcd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/pkg/v3/pbutil"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
)

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
		return fmt.Errorf("%w: %s was cut short", ErrDamaged, db) // the file is mapped: a read behind its end is a memory fault
	}
	applied := appliedIndex(db)
	if !Exists(dir) && applied > 0 {
		// etcd would begin a new log, and discard all entries until it is as long as the old one.
		return fmt.Errorf("%w: the log beside %s is gone", ErrDamaged, db)
	}
	if !Exists(dir) {
		return nil
	}
	// etcd repairs a log that ends within a record, as after a power cut. But an entry in the database was synced in the log
	// before.
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
