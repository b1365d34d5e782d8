package txn

import (
	"context"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	readTimeout = time.Second
	rereadEvery = 100 * time.Millisecond
)

// unresolved are the partitions whose keys have to be read because the answer of a transaction was lost. One goroutine
// reads many keys at a time, because no etcd could answer separate repeated reads for ten thousand partitions.
type unresolved struct {
	wake concurrency.Edge
	mu   struct {
		sync.Mutex
		open map[ident.Partition]struct{}
	}
}

func newUnresolved() *unresolved {
	u := &unresolved{wake: concurrency.NewEdge()}
	u.mu.open = map[ident.Partition]struct{}{}
	return u
}

func (u *unresolved) add(id ident.Partition) {
	u.mu.Lock()
	u.mu.open[id] = struct{}{}
	u.mu.Unlock()
	u.wake.Notify()
}

// take removes as many of the unresolved partitions as one request reads, and returns them.
func (u *unresolved) take() (some []ident.Partition) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id := range u.mu.open {
		if len(some) == metadata.MaxTxn {
			break
		}
		some = append(some, id)
		delete(u.mu.open, id)
	}
	return some
}

// resolve reads the unresolved keys until the store answers, and posts their states to the machines.
func (p *Proposer) resolve() {
	retry := time.NewTicker(rereadEvery)
	defer retry.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.unresolved.wake:
		}
		for some := p.unresolved.take(); len(some) > 0; some = p.unresolved.take() {
			for !p.reread(some) {
				select {
				case <-retry.C:
				case <-p.ctx.Done():
					return
				}
			}
		}
	}
}

// reread reads keys and posts their states; false if the store did not answer.
func (p *Proposer) reread(some []ident.Partition) bool {
	states, err := p.read(some)
	if err != nil {
		return false
	}
	for id, s := range states {
		p.o.Post(id, replica.Meta{State: s})
	}
	return true
}

// read gets the keys of some partitions, at most metadata.MaxTxn, linearizably.
func (p *Proposer) read(some []ident.Partition) (map[ident.Partition]metadata.PartitionState, error) {
	ctx, cancel := context.WithTimeout(p.ctx, readTimeout)
	defer cancel()
	keys := make([]string, len(some))
	for i, id := range some {
		keys[i] = p.o.Keys.Partition(id)
	}
	entries, err := p.o.Store.GetAll(ctx, keys)
	if err != nil {
		return nil, err
	}
	states := map[ident.Partition]metadata.PartitionState{}
	for _, e := range entries {
		id, ok := p.o.Keys.ParsePartition(e.Key)
		if s, err := metadata.DecodePartition(e); ok && err == nil {
			states[id] = s
		}
	}
	return states, nil
}
