package txn

import (
	"context"
	"sync"
)

// KeyedLock is one lock for each name. The callers that wait get it one by one, and check
// for themselves whether there is anything left to do.
// Make it with NewKeyedLock.
type KeyedLock struct {
	mu   sync.Mutex
	held map[string]*lock
}

// lock is the lock of one name. KeyedLock.mu guards callers.
type lock struct {
	holder  chan struct{} // capacity 1: full while a caller holds it
	callers int           // that hold it or wait for it
}

// NewKeyedLock makes a lock of which no name is held.
func NewKeyedLock() *KeyedLock { return &KeyedLock{held: map[string]*lock{}} }

// Lock waits until no other caller holds the name. unlock must be called if err is nil;
// else err is that of ctx.
func (k *KeyedLock) Lock(ctx context.Context, name string) (unlock func(), err error) {
	k.mu.Lock()
	l := k.held[name]
	if l == nil {
		l = &lock{holder: make(chan struct{}, 1)}
		k.held[name] = l
	}
	l.callers++
	k.mu.Unlock()
	select {
	case l.holder <- struct{}{}:
		return func() { <-l.holder; k.leave(name, l) }, nil
	case <-ctx.Done():
		k.leave(name, l)
		return nil, ctx.Err()
	}
}

// leave forgets a name that no caller holds or waits for any more.
func (k *KeyedLock) leave(name string, l *lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.callers--; l.callers == 0 {
		delete(k.held, name)
	}
}
