// Package vfstest contains file systems for tests: Memory can return its content after a power cut, and Faulty passes
// each call to a hook, which may make it fail.
package vfstest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/lockstepmq/lockstep/internal/vfs"
)

// Memory is a file system in memory that records which bytes and directory entries a power cut may
// lose. See CrashClone.
type Memory struct {
	mu struct {
		sync.Mutex
		root *node
		ops  []entryOp // not yet durable, oldest first
		free uint64
	}
}

var _ vfs.FS = (*Memory)(nil)

// node is a file (children nil) or a directory. data and children are the view of the running
// program, durable and kept the content of the disk.
type node struct {
	data, durable  []byte
	dirty          map[int64]struct{} // sectors written since the last Sync
	children, kept map[string]*node
}

// entryOp is one atomic change of directory entries: the removal of one name,
// the addition of another, or both (a rename).
type entryOp struct {
	from     *node // directory that loses fromName; nil = none
	fromName string
	to       *node // directory in which toName becomes child; nil = none
	toName   string
	child    *node
}

// NewMemory returns an empty file system with 1 TiB free.
func NewMemory() *Memory {
	m := &Memory{}
	m.mu.root = newDir()
	m.mu.free = 1 << 40
	return m
}

func newDir() *node { return &node{children: map[string]*node{}, kept: map[string]*node{}} }

func (n *node) isDir() bool { return n.children != nil }

func notExist(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: vfs.ErrNotExist} }

// findLocked finds a node by name; nil if it does not exist.
func (m *Memory) findLocked(name string) *node {
	n := m.mu.root
	for part := range strings.SplitSeq(path.Clean("/"+name), "/") {
		if part == "" {
			continue
		}
		if n == nil || !n.isDir() {
			return nil
		}
		n = n.children[part]
	}
	return n
}

func (m *Memory) parentLocked(name string) (*node, string) {
	dir, base := path.Split(path.Clean("/" + name))
	if n := m.findLocked(dir); n != nil && n.isDir() {
		return n, base
	}
	return nil, base
}

// applyLocked applies a change of entries that is not durable yet.
func (m *Memory) applyLocked(op entryOp) {
	if op.from != nil {
		delete(op.from.children, op.fromName)
	}
	if op.to != nil {
		op.to.children[op.toName] = op.child
	}
	m.mu.ops = append(m.mu.ops, op)
}

// Create implements FS.
func (m *Memory) Create(name string) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base := m.parentLocked(name)
	if dir == nil {
		return nil, notExist("create", name)
	}
	if n := dir.children[base]; n != nil && !n.isDir() {
		n.truncate(0)
		return &memoryFile{m: m, n: n, name: name}, nil
	}
	n := &node{dirty: map[int64]struct{}{}}
	m.applyLocked(entryOp{to: dir, toName: base, child: n})
	return &memoryFile{m: m, n: n, name: name}, nil
}

// Open implements FS.
func (m *Memory) Open(name string) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.findLocked(name)
	if n == nil || n.isDir() {
		return nil, notExist("open", name)
	}
	return &memoryFile{m: m, n: n, name: name}, nil
}

// Rename implements FS.
func (m *Memory) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, fromBase := m.parentLocked(oldName)
	to, toBase := m.parentLocked(newName)
	if from == nil || to == nil || from.children[fromBase] == nil {
		return notExist("rename", oldName)
	}
	m.applyLocked(entryOp{from, fromBase, to, toBase, from.children[fromBase]})
	return nil
}

// Remove implements FS.
func (m *Memory) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base := m.parentLocked(name)
	if dir == nil || dir.children[base] == nil {
		return notExist("remove", name)
	}
	if len(dir.children[base].children) > 0 {
		return &fs.PathError{Op: "remove", Path: name, Err: errors.New("directory not empty")}
	}
	m.applyLocked(entryOp{from: dir, fromName: base})
	return nil
}

// RemoveAll implements FS.
func (m *Memory) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base := m.parentLocked(name)
	if dir != nil && dir.children[base] != nil {
		m.applyLocked(entryOp{from: dir, fromName: base})
	}
	return nil
}

// MkdirAll implements FS.
func (m *Memory) MkdirAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.mu.root
	for part := range strings.SplitSeq(path.Clean("/"+name), "/") {
		if part == "" {
			continue
		}
		if n.children[part] == nil {
			m.applyLocked(entryOp{to: n, toName: part, child: newDir()})
		}
		if n = n.children[part]; !n.isDir() {
			return &fs.PathError{Op: "mkdir", Path: name, Err: errors.New("not a directory")}
		}
	}
	return nil
}

// List implements FS.
func (m *Memory) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.findLocked(dir)
	if n == nil || !n.isDir() {
		return nil, notExist("list", dir)
	}
	return sortedNames(n.children), nil
}

func sortedNames(children map[string]*node) []string {
	names := make([]string, 0, len(children))
	for name := range children {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Stat implements FS.
func (m *Memory) Stat(name string) (vfs.Stat, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.findLocked(name)
	if n == nil {
		return vfs.Stat{}, notExist("stat", name)
	}
	return vfs.Stat{Size: int64(len(n.data)), Dir: n.isDir()}, nil
}

// SyncDir implements FS.
func (m *Memory) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.findLocked(dir)
	if n == nil || !n.isDir() {
		return notExist("syncdir", dir)
	}
	rest := m.mu.ops[:0]
	for _, op := range m.mu.ops {
		if op.from == n || op.to == n {
			op.keep()
		} else {
			rest = append(rest, op)
		}
	}
	m.mu.ops = rest
	return nil
}

// keep makes the change durable.
func (op entryOp) keep() {
	if op.from != nil {
		delete(op.from.kept, op.fromName)
	}
	if op.to != nil {
		op.to.kept[op.toName] = op.child
	}
}

// FreeBytes implements FS.
func (m *Memory) FreeBytes(string) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.free, nil
}

// SetFreeBytes sets the result of FreeBytes. It does not limit writes.
func (m *Memory) SetFreeBytes(n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.free = n
}

// Flip inverts one bit of a file, on the disk and in the cache: decay.
func (m *Memory) Flip(name string, off int64, bit uint8) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.findLocked(name)
	if n == nil || off < 0 || off >= int64(len(n.data)) {
		return fmt.Errorf("vfstest: flip %s at %d: no such byte", name, off)
	}
	n.data[off] ^= 1 << (bit & 7)
	if off < int64(len(n.durable)) {
		n.durable[off] ^= 1 << (bit & 7)
	}
	return nil
}

// FlipDisk inverts one bit of a file on the disk alone: decay that reads through the page cache do not see.
func (m *Memory) FlipDisk(name string, off int64, bit uint8) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.findLocked(name)
	if n == nil || off < 0 || off >= int64(len(n.durable)) {
		return fmt.Errorf("vfstest: flip %s at %d: no such byte on the disk", name, off)
	}
	n.durable[off] ^= 1 << (bit & 7)
	return nil
}

// CrashClone returns the file system after a power cut at this moment. Of the unsynced bytes and entries, all are lost,
// all survive, or each sector and each directory entry survives with probability one half. The random source decides.
// The original does not change.
func (m *Memory) CrashClone(rng *rand.Rand) *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	survives := func() bool { return rng.IntN(2) == 0 }
	switch rng.IntN(4) {
	case 0:
		survives = func() bool { return false }
	case 1:
		survives = func() bool { return true }
	}
	c := &crash{survives: survives, copies: map[*node]*node{}}
	root := c.copy(m.mu.root)
	for _, op := range m.mu.ops {
		if survives() {
			c.op(op).keep()
		}
	}
	settle(root, map[*node]bool{})
	clone := NewMemory()
	clone.mu.root, clone.mu.free = root, m.mu.free
	return clone
}

type crash struct {
	survives func() bool
	copies   map[*node]*node
}

// copy returns the clone of n, with durable entries only.
func (c *crash) copy(n *node) *node {
	if n == nil {
		return nil
	}
	if done := c.copies[n]; done != nil {
		return done
	}
	if !n.isDir() {
		f := &node{durable: n.afterCrash(c.survives), dirty: map[int64]struct{}{}}
		c.copies[n] = f
		return f
	}
	d := newDir()
	c.copies[n] = d
	for _, name := range sortedNames(n.kept) { // sorted, so that equal seeds give equal clones
		d.kept[name] = c.copy(n.kept[name])
	}
	return d
}

func (c *crash) op(op entryOp) entryOp {
	return entryOp{c.copy(op.from), op.fromName, c.copy(op.to), op.toName, c.copy(op.child)}
}

// settle makes the content of the disk the view of the next program.
func settle(n *node, seen map[*node]bool) {
	if seen[n] {
		return
	}
	seen[n] = true
	n.data = bytes.Clone(n.durable)
	for name, child := range n.kept {
		n.children[name] = child
		settle(child, seen)
	}
}

// afterCrash returns the durable content mixed with the unsynced sectors that survive.
func (n *node) afterCrash(survives func() bool) []byte {
	size := len(n.durable)
	if len(n.data) != size && survives() {
		size = len(n.data)
	}
	out := make([]byte, size)
	copy(out, n.durable)
	sectors := make([]int64, 0, len(n.dirty))
	for s := range n.dirty {
		sectors = append(sectors, s)
	}
	slices.Sort(sectors)
	for _, s := range sectors {
		from, to := s*vfs.SectorBytes, min((s+1)*vfs.SectorBytes, int64(size), int64(len(n.data)))
		if survives() && from < to {
			copy(out[from:to], n.data[from:to])
		}
	}
	return out
}

func (n *node) touch(from, to int64) {
	for s := from / vfs.SectorBytes; s*vfs.SectorBytes < to; s++ {
		n.dirty[s] = struct{}{}
	}
}

func (n *node) truncate(size int64) {
	old := int64(len(n.data))
	if size <= old {
		clear(n.data[size:])
		n.data = n.data[:size]
	} else {
		n.data = append(n.data, make([]byte, size-old)...)
	}
	n.touch(min(old, size), max(old, size))
}

type memoryFile struct {
	m    *Memory
	n    *node
	name string

	direct bool
}

func (f *memoryFile) ReadAt(b []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.direct && misaligned(b, off) {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: fs.ErrInvalid}
	}
	if off >= int64(len(f.n.data)) {
		return 0, io.EOF
	}
	n := copy(b, f.n.data[off:])
	if f.direct {
		f.n.fromDisk(b[:n], off)
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func misaligned(b []byte, off int64) bool {
	return off%vfs.SectorBytes != 0 || len(b)%vfs.SectorBytes != 0 || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%vfs.SectorBytes != 0
}

// fromDisk overwrites b with the content of the disk in sectors that are not dirty. It differs from
// the page cache where a sector has decayed or its write failed.
func (n *node) fromDisk(b []byte, off int64) {
	for at := off; at < off+int64(len(b)); at += vfs.SectorBytes {
		if _, dirty := n.dirty[at/vfs.SectorBytes]; !dirty && at < int64(len(n.durable)) {
			copy(b[at-off:min(at-off+vfs.SectorBytes, int64(len(b)))], n.durable[at:])
		}
	}
}

func (f *memoryFile) WriteAt(b []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.direct && misaligned(b, off) {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: fs.ErrInvalid}
	}
	if end := off + int64(len(b)); end > int64(len(f.n.data)) {
		f.n.truncate(end)
	}
	copy(f.n.data[off:], b)
	f.n.touch(off, off+int64(len(b)))
	return len(b), nil
}

func (f *memoryFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.truncate(size)
	return nil
}

func (f *memoryFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.sync()
	return nil
}

// sync copies only the sectors written since the last one, so that tests with large files stay fast.
func (n *node) sync() {
	if len(n.durable) > len(n.data) {
		n.durable = n.durable[:len(n.data)]
	} else {
		n.durable = append(n.durable, make([]byte, len(n.data)-len(n.durable))...)
	}
	for s := range n.dirty {
		if from := s * vfs.SectorBytes; from < int64(len(n.data)) {
			to := min(from+vfs.SectorBytes, int64(len(n.data)))
			copy(n.durable[from:to], n.data[from:to])
		}
	}
	clear(n.dirty)
}

// OpenDisk implements FS.
func (m *Memory) OpenDisk(dir string) (vfs.Disk, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.findLocked(dir); n == nil || !n.isDir() {
		return nil, notExist("opendisk", dir)
	}
	return memoryDisk{m}, nil
}

type memoryDisk struct{ m *Memory }

// Sync makes the whole file system durable.
func (d memoryDisk) Sync() error {
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	for _, op := range d.m.mu.ops {
		op.keep()
	}
	d.m.mu.ops = nil
	d.m.mu.root.syncAll()
	return nil
}

func (n *node) syncAll() {
	for _, child := range n.children {
		if child.isDir() {
			child.syncAll()
		} else {
			child.sync()
		}
	}
}

func (memoryDisk) Close() error { return nil }

func (f *memoryFile) StartWriteback(int64, int64) {}

func (f *memoryFile) DropCache() {}

// Direct implements File. Misaligned reads and writes fail, as on the strictest disk.
func (f *memoryFile) Direct() bool {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.direct = true
	return true
}

func (f *memoryFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return int64(len(f.n.data)), nil
}

func (f *memoryFile) Close() error { return nil }

// DropWriteback simulates a kernel that cannot write a file's pages: the program still reads its
// own writes, the pages count as clean, a later Sync has nothing to write and succeeds, and a power
// cut loses the writes. A test calls it when it fails a Sync. A missing name is ignored.
func (m *Memory) DropWriteback(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.findLocked(name); n != nil && !n.isDir() {
		clear(n.dirty)
	}
}
