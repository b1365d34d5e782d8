package limits

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// Free is the number of bytes that each body, and each connection, holds without a reservation.
	Free = 64 << 10
	// MaxWait bounds the wait for a reservation.
	MaxWait = 10 * time.Second
	// Grace and MinRate are the pace required of a body that has reserved memory: after Grace its average rate must be
	// at least MinRate bytes a second. Otherwise a client that sends a byte occasionally would keep memory from others.
	Grace   = 10 * time.Second
	MinRate = 16 << 10 // bytes a second
)

// Budget is a number of bytes. A nil *Budget has no limit. Its methods may be called by any goroutine.
type Budget struct {
	size int64
	mu   struct {
		sync.Mutex
		used   int64
		uses   [uses]int64
		owners map[string]*owner // owners that hold memory or wait for it
		queue  []*owner          // owners with waiting claims
	}
}

// owner is a user or an address. Guarded by Budget.mu.
type owner struct {
	name   string
	used   int64
	claims []*claim // oldest first; an owner with claims is in Budget.mu.queue
}

func (o *owner) waits() bool { return len(o.claims) > 0 }

type claim struct {
	use     Use
	bytes   int64
	granted chan struct{} // closed when the bytes are reserved
}

// New makes a budget of the given number of bytes.
func New(size int64) *Budget {
	b := &Budget{size: size}
	b.mu.owners = map[string]*owner{}
	return b
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

// Held is the number of bytes that are reserved for a use.
func (b *Budget) Held(u Use) int64 {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.uses[u]
}

// Share is the part of a budget that one client may have. The zero value has no limit. Its methods may be called by any
// goroutine.
type Share struct {
	b     *Budget
	owner string
	short *atomic.Bool // see Watch; nil = not watched
}

// Share returns the share of a user or an address.
func (b *Budget) Share(owner string) Share { return Share{b: b, owner: owner} }

// Watch returns the share with a flag that is set when a tally of this share finds no room.
func (s Share) Watch() (Share, *atomic.Bool) {
	s.short = &atomic.Bool{}
	return s, s.short
}

// Reserve reserves the bytes of one body. It waits until the client or others release memory, for at most MaxWait, and
// returns false if that time expires or ctx ends. After true the caller calls Release with the same numbers. A body of
// at most Free bytes reserves nothing; more than the whole budget counts as the whole budget.
func (s Share) Reserve(ctx context.Context, u Use, bytes int) bool {
	b := s.b
	if b == nil {
		return true
	}
	if bytes <= Free || b.try(s.owner, u, int64(bytes), true) {
		return true
	}
	c := b.claim(s.owner, u, int64(bytes))
	limit := time.NewTimer(MaxWait)
	defer limit.Stop()
	select {
	case <-c.granted:
	case <-limit.C:
	case <-ctx.Done():
	}
	return b.leave(s.owner, c)
}

// Try is Reserve without a wait.
func (s Share) Try(u Use, bytes int) bool {
	return s.b == nil || bytes <= Free || s.b.try(s.owner, u, int64(bytes), true)
}

// Release returns the bytes of a body.
func (s Share) Release(u Use, bytes int) {
	if s.b != nil && bytes > Free {
		s.b.give(s.owner, u, int64(bytes))
	}
}

func (b *Budget) fitsLocked(o *owner, bytes int64) bool {
	free := b.size - b.mu.used
	return bytes <= free && (o == nil || o.used == 0 || o.used+bytes <= (free-bytes)/2)
}

func (b *Budget) takeLocked(o *owner, u Use, bytes int64) {
	o.used += bytes
	b.mu.used += bytes
	b.mu.uses[u] += bytes
}

func (b *Budget) ownerLocked(name string) *owner {
	o := b.mu.owners[name]
	if o == nil {
		o = &owner{name: name}
		b.mu.owners[name] = o
	}
	return o
}

func (b *Budget) forgetLocked(o *owner) {
	if o.used == 0 && !o.waits() {
		delete(b.mu.owners, o.name)
	}
}

// try reserves at once. inOrder: it fails if a claim of the same owner is waiting.
func (b *Budget) try(name string, u Use, bytes int64, inOrder bool) bool {
	bytes = min(bytes, b.size)
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.mu.owners[name]
	if !b.fitsLocked(o, bytes) || inOrder && o != nil && o.waits() {
		return false
	}
	b.takeLocked(b.ownerLocked(name), u, bytes)
	return true
}

func (b *Budget) give(name string, u Use, bytes int64) {
	bytes = min(bytes, b.size)
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.ownerLocked(name)
	b.takeLocked(o, u, -bytes)
	b.grantLocked()
	b.forgetLocked(o)
}

// claim waits for bytes, behind the owner's other claims.
func (b *Budget) claim(name string, u Use, bytes int64) *claim {
	c := &claim{use: u, bytes: min(bytes, b.size), granted: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.ownerLocked(name)
	if !o.waits() {
		b.mu.queue = append(b.mu.queue, o)
	}
	o.claims = append(o.claims, c)
	b.grantLocked() // memory may have been released since the caller checked
	return c
}

// leave ends a wait, and reports whether the claim was granted.
func (b *Budget) leave(name string, c *claim) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-c.granted: // granted after the caller stopped waiting
		return true
	default:
	}
	o := b.ownerLocked(name)
	o.claims = slices.DeleteFunc(o.claims, func(x *claim) bool { return x == c })
	b.grantLocked() // a smaller claim behind it may fit
	b.forgetLocked(o)
	return false
}

// grantLocked grants the claims that fit. A claim that does not fit delays only the later ones of its owner.
func (b *Budget) grantLocked() {
	for _, o := range b.mu.queue {
		for o.waits() && b.fitsLocked(o, o.claims[0].bytes) {
			c := o.claims[0]
			b.takeLocked(o, c.use, c.bytes)
			o.claims = o.claims[1:]
			close(c.granted)
		}
	}
	b.mu.queue = slices.DeleteFunc(b.mu.queue, func(o *owner) bool { return !o.waits() })
}

// Due is when the next byte of a body must arrive, given the number of bytes that have arrived since began.
func Due(began time.Time, read int64) time.Time {
	return began.Add(Grace + time.Duration(read)*time.Second/MinRate)
}
