package main

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// log is a file of zeroes that is written round and round. A member has one, in
// which all its nodes share syncs.
type log struct {
	file *os.File
	sync bool

	appended struct {
		sync.Mutex
		at int64
		n  int // appends so far
	}
	synced struct {
		sync.Mutex // taken before that of appended, held while syncing
		n          int
	}
}

// append writes, and gives the number of this append.
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

// appendSynced writes and, unless nothing is to be synced, syncs.
func (l *log) appendSynced(b []byte) error {
	n, err := l.append(b)
	if err != nil || !l.sync {
		return err
	}
	return l.syncTo(n)
}

// syncTo returns when that append is synced, by this sync or one that began after
// the append.
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

// appends is how many there were so far.
func (l *log) appends() int {
	l.appended.Lock()
	defer l.appended.Unlock()
	return l.appended.n
}
