package powercut

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"

	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
)

// errDead answers a process that was killed: nothing of it reaches the disk.
var errDead = errors.New("powercut: the process is dead")

// cut is what a power cut left: three disks, and what the world knew then.
type cut struct {
	at    string // which call, on which disk
	disks [nodes]*vfstest.Memory
	known known
}

// supply is the power of all disks. Every call that changes a disk, and every
// answer to a client, happens under its lock: a cut is one instant.
type supply struct {
	mu    sync.Mutex
	rng   *rand.Rand
	disks [nodes]*disk
	known known
	armed bool   // cuts are taken
	cuts  []*cut // not looked at yet
}

func (s *supply) cutLocked(at string) {
	if !s.armed {
		return
	}
	c := &cut{at: at, known: s.known}
	for i, d := range s.disks {
		c.disks[i] = d.mem.CrashClone(s.rng)
	}
	s.cuts = append(s.cuts, c)
}

// learn changes what is known; occasionally the power fails right after it.
func (s *supply) learn(what string, change func(*known)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.known)
	if what != "" && s.rng.IntN(8) == 0 {
		s.cutLocked(what)
	}
}

// arm begins or ends the taking of cuts.
func (s *supply) arm(armed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = armed
}

// take returns the cuts that were not checked yet.
func (s *supply) take() []*cut {
	s.mu.Lock()
	defer s.mu.Unlock()
	cuts := s.cuts
	s.cuts = nil
	return cuts
}

// lie selects the calls that a disk only pretends to execute.
type lie func(vfstest.Op) bool

// disk is one broker's file system as one process sees it.
type disk struct {
	s     *supply
	n     int
	mem   *vfstest.Memory
	lie   lie
	dead  bool // under supply.mu
	gated bool // under supply.mu: the next sync of a file fails, and its pages are dropped
}

var _ vfs.FS = (*disk)(nil)

// plug gives a new process the disk of node n, with these contents.
func (s *supply) plug(n int, mem *vfstest.Memory, l lie) *disk {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &disk{s: s, n: n, mem: mem, lie: l}
	s.disks[n] = d
	return d
}

// unplug kills the process as far as its disk is concerned; power says whether
// the machine went down with it.
func (d *disk) unplug(power bool) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	d.dead = true
	if power {
		d.mem = d.mem.CrashClone(d.s.rng)
	}
}

// failSync lets the next sync fail.
func (d *disk) failSync() {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	d.gated = true
}

func (d *disk) do(call vfstest.Call, name string, carryOut func() error) error {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if d.dead {
		return errDead
	}
	if call.Syncs() {
		d.s.cutLocked(fmt.Sprintf("sync of %s on n%d", name, d.n+1))
	}
	if d.lie != nil && d.lie(vfstest.Op{Call: call, Name: name}) {
		return nil
	}
	if d.gated && call == vfstest.CallSync {
		d.gated = false
		d.mem.DropWriteback(name)
		return syscall.EIO
	}
	return carryOut()
}

func (d *disk) open(call vfstest.Call, name string, open func(string) (vfs.File, error)) (vfs.File, error) {
	var f vfs.File
	err := d.do(call, name, func() (err error) {
		f, err = open(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &file{File: f, d: d, name: name}, nil
}

func (d *disk) Create(name string) (vfs.File, error) {
	return d.open(vfstest.CallCreate, name, d.mem.Create)
}

func (d *disk) Open(name string) (vfs.File, error) { return d.open(vfstest.CallOpen, name, d.mem.Open) }

func (d *disk) Rename(from, to string) error {
	return d.do(vfstest.CallRename, from, func() error { return d.mem.Rename(from, to) })
}

func (d *disk) Remove(name string) error {
	return d.do(vfstest.CallRemove, name, func() error { return d.mem.Remove(name) })
}

func (d *disk) RemoveAll(name string) error {
	return d.do(vfstest.CallRemove, name, func() error { return d.mem.RemoveAll(name) })
}

func (d *disk) MkdirAll(name string) error {
	return d.do(vfstest.CallMkdir, name, func() error { return d.mem.MkdirAll(name) })
}

func (d *disk) SyncDir(name string) error {
	return d.do(vfstest.CallSyncDir, name, func() error { return d.mem.SyncDir(name) })
}

func (d *disk) OpenDisk(name string) (vfs.Disk, error) {
	whole, err := d.mem.OpenDisk(name)
	return &wholeDisk{Disk: whole, d: d}, err
}

// wholeDisk is a disk that is open to be synced as a whole.
type wholeDisk struct {
	vfs.Disk
	d *disk
}

func (w *wholeDisk) Sync() error { return w.d.do(vfstest.CallSyncDisk, "", w.Disk.Sync) }

func (d *disk) List(name string) ([]string, error)    { return d.mem.List(name) }
func (d *disk) Stat(name string) (vfs.Stat, error)    { return d.mem.Stat(name) }
func (d *disk) FreeBytes(name string) (uint64, error) { return d.mem.FreeBytes(name) }

// file is an open file of a disk.
type file struct {
	vfs.File
	d    *disk
	name string
}

func (f *file) WriteAt(b []byte, off int64) (n int, err error) {
	err = f.d.do(vfstest.CallWrite, f.name, func() error {
		n, err = f.File.WriteAt(b, off)
		return err
	})
	return n, err
}

func (f *file) Truncate(size int64) error {
	return f.d.do(vfstest.CallTruncate, f.name, func() error { return f.File.Truncate(size) })
}

func (f *file) Sync() error { return f.d.do(vfstest.CallSync, f.name, f.File.Sync) }
