package coordinator

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/sirupsen/logrus"
)

const (
	// spaceEvery is how often the disk is looked at, and how often a broker that
	// is short of space says so. The reserve has to last for twice that.
	spaceEvery = 200 * time.Millisecond
	// spaceForgotten is how long what another broker said of its disk is believed.
	spaceForgotten = 10 * spaceEvery
)

// space knows which brokers are below their disk reserve. A leader refuses puts
// to a partition with such a member in its in-sync set, before anything is
// written: a full disk would stop that member's store. Finishes, deletions and
// all that makes room again still go through.
type space struct {
	any atomic.Bool // somebody is: the common answer costs one load
	mu  struct {
		sync.Mutex
		until map[ident.Node]time.Time
	}
}

func newSpace() *space {
	s := &space{}
	s.mu.until = map[ident.Node]time.Time{}
	return s
}

// set notes what a broker says of its disk.
func (s *space) set(n ident.Node, low bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if low {
		s.mu.until[n] = now.Add(spaceForgotten)
	} else {
		delete(s.mu.until, n)
	}
	s.any.Store(len(s.mu.until) > 0)
}

// expire forgets the brokers that have not said so again.
func (s *space) expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, until := range s.mu.until {
		if now.After(until) {
			delete(s.mu.until, n)
		}
	}
	s.any.Store(len(s.mu.until) > 0)
}

// short reports whether a member of an in-sync set is below its reserve.
func (s *space) short(isr []ident.Member) bool {
	if !s.any.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range isr {
		if _, low := s.mu.until[m.Node]; low {
			return true
		}
	}
	return false
}

// low reports whether a broker is below its reserve.
func (s *space) low(n ident.Node) bool {
	return s.short([]ident.Member{{Node: n}})
}

// spaceNotice is how a broker tells another of its disk.
type spaceNotice struct {
	Node string
	Low  bool
}

func (b *Broker) serveSpace(n spaceNotice) error {
	b.space.set(ident.Node(n.Node), n.Low, time.Now())
	return nil
}

// keepSpace watches the disk, and tells the others as long as it is short of
// space, and once when it is not any more. Started by start, ends with the
// broker.
func (b *Broker) keepSpace(ctx context.Context) {
	was := false
	every(ctx, spaceEvery, func() {
		b.space.expire(time.Now())
		low := b.belowReserve()
		if low || was {
			b.space.set(b.self, low, time.Now())
			b.tellSpace(ctx, low)
		}
		if low != was {
			b.logSpace(low)
		}
		was = low
	})
}

// belowReserve looks at the file system and at what the logs take.
func (b *Broker) belowReserve() bool {
	if limit := b.o.MaxDiskBytes; limit > 0 {
		used := int64(0)
		for _, p := range b.store.Partitions() {
			used += p.DiskBytes()
		}
		if used >= limit {
			return true
		}
	}
	free, err := b.store.FreeBytes()
	return err == nil && b.o.MinFreeBytes > 0 && free < uint64(b.o.MinFreeBytes)
}

func (b *Broker) logSpace(low bool) {
	free, _ := b.store.FreeBytes() // for the log only
	log := b.log.WithFields(logrus.Fields{"free_bytes": free, "min_free_bytes": b.o.MinFreeBytes, "max_disk_bytes": b.o.MaxDiskBytes})
	if low {
		log.Error("DISK reserve reached: puts to all partitions with a replica here are refused until consumers or an operator make room")
		return
	}
	log.Info("DISK has room again: puts are taken")
}

// tellSpace tells every broker that answers; who misses it hears it again.
func (b *Broker) tellSpace(ctx context.Context, low bool) {
	ctx, cancel := context.WithTimeout(ctx, spaceEvery)
	defer cancel()
	var calls sync.WaitGroup
	for _, r := range b.catalog.lives() {
		if r.Name != b.self && b.members.up(r.Name) {
			calls.Go(func() {
				_ = b.rpc.Call(ctx, r.Name, methodSpace, spaceNotice{Node: string(b.self), Low: low}, &none{})
			})
		}
	}
	calls.Wait()
}
