package coordinator

import (
	"context"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	readTimeout = time.Second
	rereadEvery = 100 * time.Millisecond
)

// doubts are the partitions whose keys have to be read because the answer of a
// transaction was lost. One goroutine reads them, many at a time: a read for each
// of ten thousand partitions, repeated until it is answered, is a load under which
// no etcd answers any more.
type doubts struct {
	wake chan struct{} // capacity 1
	mu   struct {
		sync.Mutex
		open map[ident.Partition]struct{}
	}
}

func newDoubts() *doubts {
	d := &doubts{wake: make(chan struct{}, 1)}
	d.mu.open = map[ident.Partition]struct{}{}
	return d
}

func (d *doubts) add(id ident.Partition) {
	d.mu.Lock()
	d.mu.open[id] = struct{}{}
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// take gives some of what is open, as many as one request reads.
func (d *doubts) take() (some []ident.Partition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.mu.open {
		if len(some) == meta.MaxTxn {
			break
		}
		some = append(some, id)
		delete(d.mu.open, id)
	}
	return some
}

// settleDoubts reads the keys in doubt, each until that works, and tells the
// machines what is there. A revision that did not move proves nothing; the machines
// know that.
func (p *proposer) settleDoubts() {
	retry := time.NewTicker(rereadEvery)
	defer retry.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.doubts.wake:
		}
		for some := p.doubts.take(); len(some) > 0; some = p.doubts.take() {
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

// reread reads keys and posts what is there; false if the store did not answer.
func (p *proposer) reread(some []ident.Partition) bool {
	states, err := p.read(some)
	if err != nil {
		return false
	}
	for id, s := range states {
		p.post(id, replica.Meta{State: s})
	}
	return true
}

// read gets the keys of some partitions, at most meta.MaxTxn, linearizably.
func (p *proposer) read(some []ident.Partition) (map[ident.Partition]meta.PartitionState, error) {
	ctx, cancel := context.WithTimeout(p.ctx, readTimeout)
	defer cancel()
	keys := make([]string, len(some))
	for i, id := range some {
		keys[i] = p.keys.Partition(id)
	}
	entries, err := p.store.GetAll(ctx, keys)
	if err != nil {
		return nil, err
	}
	states := map[ident.Partition]meta.PartitionState{}
	for _, e := range entries {
		id, ok := p.keys.ParsePartition(e.Key)
		if s, err := meta.DecodePartition(e); ok && err == nil {
			states[id] = s
		}
	}
	return states, nil
}
