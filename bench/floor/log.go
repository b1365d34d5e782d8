package main

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// log is a file of zeroes that is written in a circle. A member has one, and all its nodes
// share its syncs.
type log struct {
	file *os.File
	sync bool

	appended struct {
		sync.Mutex
		at int64
		n  int // number of appends
	}
	synced struct {
		sync.Mutex // acquired before the lock of appended, held while syncing
		n          int
	}
}

// append writes and returns the number of this append.
func (l *log) append(b []byte) (int, error) {
	a := &l.appended
	a.Lock()
	defer a.Unlock()
	if a.at+int64(len(b)) > fileBytes {
		a.at = 0
	}
	if _, err := l.file.WriteAt(b, a.at); err != nil {
		return 0, err
	}
	a.at += int64(len(b))
	a.n++
	return a.n, nil
}

// appendSynced writes and, unless syncing is off, syncs.
func (l *log) appendSynced(b []byte) error {
	n, err := l.append(b)
	if err != nil || !l.sync {
		return err
	}
	return l.syncTo(n)
}

// syncTo returns when the append is synced, by this sync or by one that began after the
// append.
func (l *log) syncTo(n int) error {
	s := &l.synced
	s.Lock()
	defer s.Unlock()
	if s.n >= n {
		return nil
	}
	covers := l.appends()
	if err := unix.Fdatasync(int(l.file.Fd())); err != nil {
		return err
	}
	s.n = covers
	return nil
}

// appends returns the number of appends.
func (l *log) appends() int {
	l.appended.Lock()
	defer l.appended.Unlock()
	return l.appended.n
}
