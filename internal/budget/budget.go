// Package budget bounds the memory of all bodies that a broker is receiving at the same time.
//
// A connection reserves the announced size of a large body before it reads it. Otherwise many
// connections that each stay below the limit of one body could together take all memory. The
// package does not allocate: it counts bytes.
//
// # Limits
//
// A body of at most Free bytes reserves nothing: most messages are smaller, and the number of
// connections bounds them.
//
// # Invariants
//
//  1. The reserved bytes never exceed the size of the budget.
//  2. Reservations are granted in the order in which they were asked for, so that a large one
//     is not overtaken for ever.
//
// # Goroutines
//
// None.
package budget

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// Free is the largest body that reserves nothing, in bytes.
const Free = 64 << 10

// MaxWait bounds the wait for a reservation.
const MaxWait = 10 * time.Second

// Budget is a number of bytes. A nil *Budget has no limit. Its methods may be called by any
// goroutine.
type Budget struct {
	size int64
	mu   struct {
		sync.Mutex
		used    int64
		waiting *list.List // of *claim
	}
}

type claim struct {
	bytes   int64
	granted chan struct{} // closed when the bytes are reserved
}

// New makes a budget of that many bytes.
func New(size int64) *Budget {
	b := &Budget{size: size}
	b.mu.waiting = list.New()
	return b
}

// Reserve reserves the bytes of a body. It waits until other bodies are complete, for MaxWait
// or until ctx ends, and reports false then. After true the caller calls Release with the same
// number. More than the whole budget is the whole budget.
func (b *Budget) Reserve(ctx context.Context, bytes int) bool {
	if b == nil || bytes <= Free {
		return true
	}
	c := &claim{bytes: min(int64(bytes), b.size), granted: make(chan struct{})}
	b.mu.Lock()
	if b.mu.waiting.Len() == 0 && b.mu.used+c.bytes <= b.size {
		b.mu.used += c.bytes
		b.mu.Unlock()
		return true
	}
	place := b.mu.waiting.PushBack(c)
	b.mu.Unlock()
	limit := time.NewTimer(MaxWait)
	defer limit.Stop()
	select {
	case <-c.granted:
		return true
	case <-limit.C:
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-c.granted: // in the meantime
		return true
	default:
	}
	b.mu.waiting.Remove(place)
	b.grantLocked() // a smaller one behind it may fit
	return false
}

// Release gives the bytes of a body back.
func (b *Budget) Release(bytes int) {
	if b == nil || bytes <= Free {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.used -= min(int64(bytes), b.size)
	b.grantLocked()
}

func (b *Budget) grantLocked() {
	for first := b.mu.waiting.Front(); first != nil; first = b.mu.waiting.Front() {
		c := first.Value.(*claim)
		if b.mu.used+c.bytes > b.size {
			return
		}
		b.mu.used += c.bytes
		b.mu.waiting.Remove(first)
		close(c.granted)
	}
}

// Used is the number of reserved bytes.
func (b *Budget) Used() int64 {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.used
}
