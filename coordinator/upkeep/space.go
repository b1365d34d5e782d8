package upkeep

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/calls"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/store"
	"github.com/sirupsen/logrus"
)

const (
	// spaceEvery is how often the disk is looked at, and how often a broker that
	// is short of space says so. The reserve has to last for twice that.
	spaceEvery = 200 * time.Millisecond
	// spaceForgotten is how long another broker's report about its disk is valid.
	spaceForgotten = 10 * spaceEvery
)

// SpaceOptions are all required but the limits.
type SpaceOptions struct {
	Self  ident.Node
	Store *store.Store
	// Others are the other live brokers that answer.
	Others func() []ident.Node
	Caller calls.Caller
	// MinFreeBytes and MaxDiskBytes are the disk reserve: less free space, or larger logs,
	// are short of space; 0 = no limit.
	MinFreeBytes, MaxDiskBytes int64
	// TrashBytes is the size of the replicas here whose topics lie in the trash.
	TrashBytes func() int64
	Log        logrus.FieldLogger
}

// Space has the brokers that are below their disk reserve, and watches the disk here. A
// leader refuses puts to a partition with such a member in its in-sync set, before
// anything is written: a full disk would stop that member's store. Finishes, deletions and
// all that makes room again still go through.
type Space struct {
	o   SpaceOptions
	was bool        // below the reserve at the last look; the job's goroutine has it
	any atomic.Bool // some broker is: the common answer costs one load
	mu  struct {
		sync.Mutex
		until map[ident.Node]time.Time
	}
}

// NewSpace makes the job's state.
func NewSpace(o SpaceOptions) *Space {
	s := &Space{o: o}
	s.mu.until = map[ident.Node]time.Time{}
	return s
}

// Any reports whether some broker is below its reserve.
func (s *Space) Any() bool { return s.any.Load() }

// Short reports whether a member of an in-sync set is below its reserve.
func (s *Space) Short(isr []ident.Member) bool {
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

// Low reports whether a broker is below its reserve.
func (s *Space) Low(n ident.Node) bool {
	return s.Short([]ident.Member{{Node: n}})
}

// Here reports whether this broker is below its reserve.
func (s *Space) Here() bool { return s.Low(s.o.Self) }

// Notice takes another broker's report about its disk (calls.Space).
func (s *Space) Notice(n calls.SpaceNotice) { s.set(ident.Node(n.Node), n.Low, time.Now()) }

func (s *Space) set(n ident.Node, low bool, now time.Time) {
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
func (s *Space) expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, until := range s.mu.until {
		if now.After(until) {
			delete(s.mu.until, n)
		}
	}
	s.any.Store(len(s.mu.until) > 0)
}

// Job is the periodic work.
func (s *Space) Job() Job { return Job{Every: spaceEvery, Look: s.look} }

// look watches the disk, and notifies the others as long as it is short of space, and once
// when it is not any more.
func (s *Space) look(ctx context.Context) {
	s.expire(time.Now())
	low := s.belowReserve()
	if low || s.was {
		s.set(s.o.Self, low, time.Now())
		s.notify(ctx, low)
	}
	if low != s.was {
		s.log(low)
	}
	s.was = low
}

// belowReserve looks at the file system and at the size of the logs.
func (s *Space) belowReserve() bool {
	if limit := s.o.MaxDiskBytes; limit > 0 {
		used := int64(0)
		for _, p := range s.o.Store.Partitions() {
			used += p.DiskBytes()
		}
		if used >= limit {
			return true
		}
	}
	free, err := s.o.Store.FreeBytes()
	return err == nil && s.o.MinFreeBytes > 0 && free < uint64(s.o.MinFreeBytes)
}

func (s *Space) log(low bool) {
	free, _ := s.o.Store.FreeBytes() // for the log only
	log := s.o.Log.WithFields(logrus.Fields{"free_bytes": free, "min_free_bytes": s.o.MinFreeBytes, "max_disk_bytes": s.o.MaxDiskBytes})
	if low {
		log.Error("DISK reserve reached: puts to all partitions with a replica here are refused until consumers or an operator make room")
		if trash := s.o.TrashBytes(); trash > 0 {
			log.WithField("trash_bytes", trash).Warn("DISK: deleted topics in the trash take space here: nsqctl topic purge TOPIC removes one for good, --delete-early removes them when the disk is short")
		}
		return
	}
	log.Info("DISK has room again: puts are taken")
}

// notify notifies every broker that answers. One that misses it is notified again.
func (s *Space) notify(ctx context.Context, low bool) {
	ctx, cancel := context.WithTimeout(ctx, spaceEvery)
	defer cancel()
	var notified sync.WaitGroup
	for _, n := range s.o.Others() {
		notified.Go(func() {
			_, _ = calls.Space.Ask(ctx, s.o.Caller, n, calls.SpaceNotice{Node: string(s.o.Self), Low: low})
		})
	}
	notified.Wait()
}
