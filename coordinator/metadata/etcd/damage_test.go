package etcd_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
)

// stoppedMember is the only member of its cluster; it has stored a key and was stopped.
func stoppedMember(t *testing.T) etcd.Options {
	t.Helper()
	o := options(t, "n1")
	s := start(t, o)
	ready(t, s)
	for _, key := range []string{"a", "b", "c", "d"} {
		put(t, s, key)
	}
	s.Stop()
	return o
}

// logOf returns the file of a member's log, and the number of its written bytes.
func logOf(t *testing.T, o etcd.Options) (name string, used int64) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(o.Dir, "member", "wal", "*.wal"))
	require.NoError(t, err)
	require.Len(t, names, 1)
	content, err := os.ReadFile(names[0])
	require.NoError(t, err)
	return names[0], int64(len(bytes.TrimRight(content, "\x00")))
}

func overwrite(t *testing.T, name string, at int64, b ...byte) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(b, at)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// TestDamagedLog: a log with a wrong byte, or without an end that the database has
// applied, is refused; etcd itself continues without the end.
func TestDamagedLog(t *testing.T) {
	t.Parallel()
	for what, harm := range map[string]func(name string, used int64){
		"a byte":           func(name string, used int64) { overwrite(t, name, used/2, 0xff, 0xfe, 0xfd) },
		"cut":              func(name string, used int64) { require.NoError(t, os.Truncate(name, used/2/512*512)) },
		"cut in a record":  func(name string, used int64) { require.NoError(t, os.Truncate(name, used/2/512*512+8)) },
		"its end is empty": func(name string, used int64) { overwrite(t, name, used/2/8*8, make([]byte, used-used/2/8*8)...) },
		"empty":            func(name string, used int64) { overwrite(t, name, 0, make([]byte, used)...) },
		"no bytes":         func(name string, _ int64) { require.NoError(t, os.Truncate(name, 0)) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			o := stoppedMember(t)
			harm(logOf(t, o))
			s, err := etcd.Start(t.Context(), o)
			if err == nil {
				s.Stop()
			}
			require.ErrorIs(t, err, etcd.ErrDamaged)
			require.ErrorContains(t, err, "move the directory away")
		})
	}
}

// TestTornLog: a power cut may leave half of the last record, whose client has no answer. That
// is no damage.
func TestTornLog(t *testing.T) {
	t.Parallel()
	o := stoppedMember(t)
	db := filepath.Join(o.Dir, "member", "snap", "db")
	before, err := os.ReadFile(db)
	require.NoError(t, err)
	s := start(t, o)
	ready(t, s)
	put(t, s, "e")
	s.Stop()
	require.NoError(t, os.WriteFile(db, before, 0o600))
	name, used := logOf(t, o)
	require.NoError(t, os.Truncate(name, used-4))
	s = start(t, o)
	ready(t, s)
	has(t, s, "d")
	put(t, s, "f")
}

// TestFilesThatTheSystemRefuses: files without access are not damaged, and the error must not
// advise to move the directory away.
func TestFilesThatTheSystemRefuses(t *testing.T) {
	for what, harm := range map[string]func(o etcd.Options) error{
		"the database is a link to itself": func(o etcd.Options) error {
			db := filepath.Join(o.Dir, "member", "snap", "db")
			return errors.Join(os.Remove(db), os.Symlink("db", db))
		},
		"a file in place of a directory": func(o etcd.Options) error {
			member := filepath.Join(o.Dir, "member")
			return errors.Join(os.RemoveAll(member), os.WriteFile(member, nil, 0o600))
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			o := stoppedMember(t)
			require.NoError(t, harm(o))
			_, err := etcd.Start(t.Context(), o)
			require.ErrorIs(t, err, etcd.ErrFiles)
			require.NotErrorIs(t, err, etcd.ErrDamaged)
		})
	}
}

// TestDamageInAnOlderFile: etcd reads all files of the log, and returns the damage. The size of
// a file is a variable of the process, so this test runs before those that run together.
func TestDamageInAnOlderFile(t *testing.T) {
	before := wal.SegmentSizeBytes
	wal.SegmentSizeBytes = 4 << 10
	t.Cleanup(func() { wal.SegmentSizeBytes = before })
	o := options(t, "n1")
	s := start(t, o)
	ready(t, s)
	logs := func() []string {
		names, err := filepath.Glob(filepath.Join(o.Dir, "member", "wal", "*.wal"))
		require.NoError(t, err)
		return names
	}
	for i := 0; len(logs()) < 3; i++ {
		put(t, s, fmt.Sprint(i))
	}
	s.Stop()
	overwrite(t, logs()[1], 1000, 0xff, 0xfe, 0xfd)
	_, err := etcd.Start(t.Context(), o)
	require.ErrorIs(t, err, etcd.ErrDamaged)
}

// TestWhyEtcdGivesUp: only damaged files have the advice to move them away.
func TestWhyEtcdGivesUp(t *testing.T) {
	path := func(errno syscall.Errno) error { return &fs.PathError{Op: "write", Path: "db", Err: errno} }
	for what, test := range map[string]struct{ cause, means error }{
		"full":               {fmt.Errorf("failed to create WAL: %w", syscall.ENOSPC), etcd.ErrDiskFull},
		"quota":              {path(syscall.EDQUOT), etcd.ErrDiskFull},
		"full, of a syscall": {os.NewSyscallError("write", syscall.ENOSPC), etcd.ErrDiskFull},
		"a failed sync":      {fmt.Errorf("failed to save: %w", syscall.EIO), etcd.ErrFiles},
		"not allowed":        {path(syscall.EACCES), etcd.ErrFiles},
		"a file is gone":     {path(syscall.ENOENT), etcd.ErrDamaged},
		"a checksum":         {fmt.Errorf("failed to read WAL: %w", wal.ErrCRCMismatch), etcd.ErrDamaged},
		"raft":               {errors.New("tocommit(107) is out of range [lastIndex(84)]. Was the raft log corrupted, truncated, or lost?"), etcd.ErrDamaged},
		"anything else":      {errors.New("two member with same name found"), etcd.ErrDamaged},
	} {
		err := etcd.ExplainEnd(test.cause)
		require.ErrorIs(t, err, test.means, what)
		require.ErrorIs(t, err, test.cause, what)
		for _, other := range []error{etcd.ErrDiskFull, etcd.ErrFiles, etcd.ErrDamaged} {
			require.Equal(t, other == test.means, errors.Is(err, other), "%s: %v", what, err)
		}
	}
}
