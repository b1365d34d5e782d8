package txn

import (
	"context"
	"sync"
)

// KeyedLock is a lock for each name. Make it with NewKeyedLock.
type KeyedLock struct {
	mu   sync.Mutex
	held map[string]*lock
}

// lock is the lock of one name. KeyedLock.mu guards callers.
type lock struct {
	holder  chan struct{} // capacity 1: full while a caller holds the lock
	callers int           // callers that hold the lock or wait for it
}

// NewKeyedLock makes a lock with no name locked.
func NewKeyedLock() *KeyedLock { return &KeyedLock{held: map[string]*lock{}} }

// Lock waits for the lock of a name; err is the error of ctx if it ends before.
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

// leave removes the lock of a name that no caller holds or waits for.
func (k *KeyedLock) leave(name string, l *lock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.callers--; l.callers == 0 {
		delete(k.held, name)
	}
}
