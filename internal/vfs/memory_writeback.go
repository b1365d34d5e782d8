package vfs

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
