package vfs

// DropWriteback is what a kernel does when it cannot write a file's pages: the
// program goes on reading what it wrote, the pages count as clean, a later Sync
// has nothing to write and succeeds, and a power cut takes them away. A test
// calls it when it fails a Sync. A name that is not there is left alone.
func (m *Memory) DropWriteback(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n := m.findLocked(name); n != nil && !n.isDir() {
		clear(n.dirty)
	}
}
