package world

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
)

// disk is the disk of one machine. A process sees it through a mount, which ends with the process.
type disk struct {
	mu     sync.Mutex
	memory *vfstest.Memory
	random *rand.Rand
	hung   chan struct{} // closed when the disk answers again; nil = it answers
	full   bool
	slow   time.Duration // added to each sync
	flaws  int           // writes and syncs that fail from now on
}

const roomBytes = 1 << 30

func newDisk(random *rand.Rand) *disk {
	m := vfstest.NewMemory()
	m.SetFreeBytes(roomBytes)
	return &disk{memory: m, random: random}
}

// mount is the disk as one process sees it. A dead process reads and writes nothing more.
type mount struct {
	d    *disk
	dead chan struct{} // closed at the end of the process
	once sync.Once
}

func (m *mount) die() { m.once.Do(func() { close(m.dead) }) }

var (
	errDead = errors.New("the process is dead")
	errDisk = syscall.EIO
)

// fs returns the file system of the mount.
func (m *mount) fs() vfs.FS { return vfstest.Wrap(m.d.memory, m.hook) }

// hook delays, fails or passes one call.
func (m *mount) hook(op vfstest.Op) error {
	m.d.mu.Lock()
	hung, full, wait, flawed := m.d.hung, m.d.full, time.Duration(0), false
	switch op.Call {
	case vfstest.CallSync, vfstest.CallSyncDir, vfstest.CallSyncDisk:
		wait = time.Duration(100+m.d.random.IntN(1500))*time.Microsecond + m.d.slow
		if m.d.random.IntN(100) == 0 {
			wait += time.Duration(m.d.random.IntN(40)) * time.Millisecond
		}
	case vfstest.CallWrite, vfstest.CallTruncate, vfstest.CallCreate:
		if m.d.flaws > 0 {
			m.d.flaws--
			flawed = true
		}
	}
	m.d.mu.Unlock()
	if hung != nil {
		select {
		case <-hung:
		case <-m.dead:
		}
	}
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-m.dead:
		}
	}
	select {
	case <-m.dead:
		return errDead
	default:
	}
	switch {
	case flawed:
		return errDisk
	case full && (op.Call == vfstest.CallWrite || op.Call == vfstest.CallCreate) && !strings.HasSuffix(op.Name, "node.json"):
		return syscall.ENOSPC
	}
	return nil
}

// hang stops all calls until answer.
func (d *disk) hang() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hung == nil {
		d.hung = make(chan struct{})
	}
}

func (d *disk) answer() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hung != nil {
		close(d.hung)
		d.hung = nil
	}
}

// fill leaves some bytes free; with 0 writes fail, too.
func (d *disk) fill(free uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.memory.SetFreeBytes(free)
	d.full = free == 0
}

// fail lets some of the next writes fail.
func (d *disk) fail(calls int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flaws = calls
}

// heal ends all faults.
func (d *disk) heal() {
	d.answer()
	d.fill(roomBytes)
	d.fail(0)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow = 0
}

// cutPower gives the disk the content that a power cut leaves. No process may have it mounted.
func (d *disk) cutPower() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.memory = d.memory.CrashClone(d.random)
}

// setSlow adds to the time of each sync.
func (d *disk) setSlow(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.slow = by
}
