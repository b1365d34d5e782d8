package vfs

import (
	"container/list"
	"errors"
	"sync"
)

// Cache keeps at most a number of files open and closes the least recently used one first, because
// ten thousand partitions have more files than a process may open. Handles in use are never closed,
// so the number of concurrent readers may exceed the limit.
type Cache struct {
	fs    FS
	limit int
	mu    struct {
		sync.Mutex
		open map[string]*Handle
		idle *list.List // of *Handle with refs 0, most recent in front
	}
}

// Handle is an open file. The user returns it with Release.
type Handle struct {
	File
	name    string
	cache   *Cache
	refs    int           // guarded by the cache's lock
	elem    *list.Element // nil while in use
	dropped bool          // the last Release closes it
}

// NewCache returns a cache over fs that keeps about limit files open.
func NewCache(fs FS, limit int) *Cache {
	c := &Cache{fs: fs, limit: limit}
	c.mu.open = map[string]*Handle{}
	c.mu.idle = list.New()
	return c
}

// Open opens the file, which must exist.
func (c *Cache) Open(name string) (*Handle, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lendLocked(name, c.fs.Open)
}

// Create creates or empties the file and opens it.
func (c *Cache) Create(name string) (*Handle, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.forgetLocked(name); err != nil {
		return nil, err
	}
	return c.lendLocked(name, c.fs.Create)
}

// Remove removes the file first and then closes it when its last user has released it. The order
// matters: a reader that opens the file in between does not keep a handle of the removed file.
func (c *Cache) Remove(name string) error {
	return errors.Join(c.fs.Remove(name), c.Forget(name))
}

// lendLocked opens under the lock. Opening is rare, and with two handles of one file Forget would
// close only one of them.
func (c *Cache) lendLocked(name string, open func(string) (File, error)) (*Handle, error) {
	h := c.mu.open[name]
	if h == nil {
		if err := c.evictLocked(); err != nil {
			return nil, err
		}
		f, err := open(name)
		if err != nil {
			return nil, err
		}
		h = &Handle{File: f, name: name, cache: c}
		c.mu.open[name] = h
	}
	if h.elem != nil {
		c.mu.idle.Remove(h.elem)
		h.elem = nil
	}
	h.refs++
	return h, nil
}

func (c *Cache) evictLocked() error {
	for len(c.mu.open) >= c.limit && c.mu.idle.Len() > 0 {
		h := c.mu.idle.Remove(c.mu.idle.Back()).(*Handle)
		delete(c.mu.open, h.name)
		if err := h.File.Close(); err != nil {
			return err
		}
	}
	return nil
}

// Release returns the handle to the cache.
func (h *Handle) Release() {
	c := h.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.refs--; h.refs > 0 {
		return
	}
	if h.dropped {
		_ = h.File.Close() // the file is removed or synced: an error loses nothing
		return
	}
	h.elem = c.mu.idle.PushFront(h)
}

// Forget closes the file when its last user has released it.
func (c *Cache) Forget(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.forgetLocked(name)
}

func (c *Cache) forgetLocked(name string) error {
	h := c.mu.open[name]
	if h == nil {
		return nil
	}
	delete(c.mu.open, name)
	if h.refs > 0 {
		h.dropped = true
		return nil
	}
	c.mu.idle.Remove(h.elem)
	h.elem = nil
	return h.File.Close()
}

// Close closes all files; those in use are closed by their Release.
func (c *Cache) Close() error {
	c.mu.Lock()
	names := make([]string, 0, len(c.mu.open))
	for name := range c.mu.open {
		names = append(names, name)
	}
	c.mu.Unlock()
	var err error
	for _, name := range names {
		err = errors.Join(err, c.Forget(name))
	}
	return err
}
