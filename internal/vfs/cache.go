package vfs

import (
	"container/list"
	"errors"
	"sync"
)

// Cache limits the number of open files, because ten thousand partitions have more files than a process may open. It
// closes the least recently used file first. Files in use are never closed, so the number of concurrent readers may
// exceed the limit.
type Cache struct {
	fs    FS
	limit int
	mu    struct {
		sync.Mutex
		open map[string]*handle
		idle *list.List // of *handle with refs 0, most recent in front
	}
}

type handle struct {
	File
	name    string
	refs    int
	elem    *list.Element // nil while in use
	dropped bool          // the last release closes it
}

// NewCache returns a cache over fs that keeps about limit files open.
func NewCache(fs FS, limit int) *Cache {
	c := &Cache{fs: fs, limit: limit}
	c.mu.open = map[string]*handle{}
	c.mu.idle = list.New()
	return c
}

// Use calls f with the open file, which must exist, and returns the error of f. Any number of
// goroutines may use a file at once.
func (c *Cache) Use(name string, f func(File) error) error {
	c.mu.Lock()
	h, err := c.acquireLocked(name, c.fs.Open)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.releaseLocked(h)
	}()
	return f(h.File)
}

// Create creates or empties the file.
func (c *Cache) Create(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.forgetLocked(name); err != nil {
		return err
	}
	h, err := c.acquireLocked(name, c.fs.Create)
	if err == nil {
		c.releaseLocked(h)
	}
	return err
}

// Remove removes the file first and then closes it when its last user has released it; a missing file is not an error.
// The order matters: otherwise a reader that opens the file in between would keep the removed file open.
func (c *Cache) Remove(name string) error {
	err := c.fs.Remove(name)
	if errors.Is(err, ErrNotExist) {
		err = nil
	}
	return errors.Join(err, c.Forget(name))
}

// acquireLocked opens under the lock. Opening is rare. Opening without the lock could create two handles of one file,
// of which Forget would close only one.
func (c *Cache) acquireLocked(name string, open func(string) (File, error)) (*handle, error) {
	h := c.mu.open[name]
	if h == nil {
		if err := c.evictLocked(); err != nil {
			return nil, err
		}
		f, err := open(name)
		if err != nil {
			return nil, err
		}
		h = &handle{File: f, name: name}
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
		h := c.mu.idle.Remove(c.mu.idle.Back()).(*handle)
		delete(c.mu.open, h.name)
		if err := h.File.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cache) releaseLocked(h *handle) {
	h.refs--
	switch {
	case h.refs > 0:
	case h.dropped:
		_ = h.File.Close() // the file is removed or synced: an error loses nothing
	default:
		h.elem = c.mu.idle.PushFront(h)
	}
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
	return h.File.Close()
}

// Close closes all files; those in use are closed when they are released.
func (c *Cache) Close() (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.mu.open {
		err = errors.Join(err, c.forgetLocked(name))
	}
	return err
}
