package maintenance

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/store"
	"github.com/lockstepmq/lockstep/rpc/calls"
	"github.com/sirupsen/logrus"
)

const (
	// spaceEvery is how often the disk is looked at, and how often a broker that
	// is short of space says so. The reserve has to last for twice that.
	spaceEvery = 200 * time.Millisecond
	// spaceBack is how long a disk has to be above its reserve before the broker counts as having room: one at the edge
	// would leave and join the in-sync sets all the time.
	spaceBack = 5 * time.Second
	// spaceForgotten is how long another broker's report about its disk is valid.
	spaceForgotten = 10 * spaceEvery
)

// SpaceOptions are all required but the limits.
type SpaceOptions struct {
	Self  ident.Node
	Store *store.Store
	// Partitions are the replicas here.
	Partitions func() []*engine.Partition
	// Others are the other live brokers that answer.
	Others func() []ident.Node
	// Alive reports whether a broker is registered and answers.
	Alive  func(ident.Node) bool
	Caller calls.Caller
	// MinFreeBytes and MaxDiskBytes are the disk reserve: less free space, or larger logs,
	// are short of space; 0 = no limit.
	MinFreeBytes, MaxDiskBytes int64
	// TrashBytes is the size of the replicas here whose topics lie in the trash.
	TrashBytes func() int64
	Log        logrus.FieldLogger
}

// Space has the brokers that are below their disk reserve, and watches the disk here. The machines are notified of each
// change. Such a broker leaves the in-sync sets whose other members satisfy the minimum (AC-10), and gives the
// leaderships away that such a member can take. Of the other partitions with it in the in-sync set puts are refused, before
// anything is written: a full disk would stop that member's store. Finishes, deletions and
// all that makes room again still go through.
type Space struct {
	o     SpaceOptions
	was   bool        // below the reserve at the last look; the job's goroutine has it
	below time.Time   // when a look last found it below; the same goroutine has it
	any   atomic.Bool // some broker is: the common answer costs one load
	mu    struct {    // held while events are posted
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

// Begin looks at the disk for the first time, before a replica is opened: a broker that starts with a full disk takes nothing.
func (s *Space) Begin() {
	if s.was = s.belowReserve(); s.was {
		s.below = time.Now()
		s.set(s.o.Self, true, s.below)
		s.log(true)
	}
}

// Any reports whether some broker is below its reserve.
func (s *Space) Any() bool { return s.any.Load() }

// AnyOf reports whether one of these brokers is below its reserve.
func (s *Space) AnyOf(nodes []ident.Node) bool {
	if !s.any.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(nodes, s.lowLocked)
}

func (s *Space) lowLocked(n ident.Node) bool {
	_, low := s.mu.until[n]
	return low
}

// Short reports whether a member of an in-sync set is below its reserve (engine.Options.Reserve).
func (s *Space) Short(isr []ident.Member) bool {
	if !s.any.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(isr, func(m ident.Member) bool { return s.lowLocked(m.Node) })
}

// Lacking counts the partitions led here whose puts are refused for lack of space: fewer members of the in-sync set than the
// minimum have room.
func (s *Space) Lacking() (n int) {
	if !s.any.Load() {
		return 0
	}
	for _, p := range s.o.Partitions() {
		v := p.View()
		if v.Role != replica.Leader || !s.Short(v.ISR) {
			continue
		}
		roomy := slices.DeleteFunc(slices.Clone(v.ISR), func(m ident.Member) bool { return s.Low(m.Node) })
		if len(roomy) < max(v.MinInSync, 1) {
			n++
		}
	}
	return n
}

// Low reports whether a broker is below its reserve.
func (s *Space) Low(n ident.Node) bool { return s.AnyOf([]ident.Node{n}) }

// Here reports whether this broker is below its reserve.
func (s *Space) Here() bool { return s.Low(s.o.Self) }

// Introduce posts which of these brokers are below their reserve (replicas.Space).
func (s *Space) Introduce(nodes []ident.Node, post func(replica.Event)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range nodes {
		if s.lowLocked(n) {
			post(replica.Space{Node: n, Low: true})
		}
	}
}

// Notice takes another broker's report about its disk (calls.Space).
func (s *Space) Notice(n calls.SpaceNotice) { s.set(ident.Node(n.Node), n.Low, time.Now()) }

func (s *Space) set(n ident.Node, low bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.lowLocked(n)
	if low {
		s.mu.until[n] = now.Add(spaceForgotten)
	} else {
		delete(s.mu.until, n)
	}
	s.changedLocked(n, was, low)
}

// changedLocked notifies the machines of a change.
func (s *Space) changedLocked(n ident.Node, was, low bool) {
	s.any.Store(len(s.mu.until) > 0)
	if was == low {
		return
	}
	for _, p := range s.o.Partitions() {
		p.Post(replica.Space{Node: n, Low: low})
	}
}

// expire forgets the other brokers that have not said so again. This one has room when a look says so, however late.
func (s *Space) expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, until := range s.mu.until {
		if n != s.o.Self && now.After(until) {
			delete(s.mu.until, n)
			s.changedLocked(n, true, false)
		}
	}
}

// Job is the periodic work.
func (s *Space) Job() Job { return Job{Every: spaceEvery, Run: s.run} }

// run watches the disk, and notifies the others as long as it is short of space, and once
// when it is not any more.
func (s *Space) run(ctx context.Context) {
	now := time.Now()
	s.expire(now)
	low := s.belowReserve()
	if low {
		s.below = now
	}
	low = low || s.was && now.Sub(s.below) < spaceBack
	if low || s.was {
		s.set(s.o.Self, low, now)
		s.notify(ctx, low)
	}
	if low != s.was {
		s.log(low)
	}
	if s.was = low; low {
		s.giveWay()
	}
}

// giveWay transfers the leaderships whose partitions take puts with another leader: a minimum of members has room.
func (s *Space) giveWay() {
	for _, p := range s.o.Partitions() {
		if v := p.View(); v.Role == replica.Leader {
			if to, ok := s.successor(v); ok {
				p.TransferLeadership(to)
			}
		}
	}
}

// successor is the first replica that can lead with a minimum of members that have room.
func (s *Space) successor(v *replica.View) (to ident.Node, ok bool) {
	roomy := 0
	for _, n := range v.Replicas {
		inSync := slices.ContainsFunc(v.ISR, func(m ident.Member) bool { return m.Node == n })
		if !inSync || s.Low(n) || !s.o.Alive(n) {
			continue
		}
		if roomy++; roomy == 1 {
			to = n
		}
	}
	return to, roomy >= max(v.MinInSync, 1)
}

// belowReserve looks at the file system and at the size of the logs. If the file system does not say how much is free, the
// answer is that of the last look.
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
	if err != nil {
		return s.was
	}
	return s.o.MinFreeBytes > 0 && free < uint64(s.o.MinFreeBytes)
}

func (s *Space) log(low bool) {
	free, _ := s.o.Store.FreeBytes() // for the log only
	log := s.o.Log.WithFields(logrus.Fields{"free_bytes": free, "min_free_bytes": s.o.MinFreeBytes, "max_disk_bytes": s.o.MaxDiskBytes})
	if low {
		log.Error("disk reserve reached: leaving in-sync sets and leaderships where enough other replicas have room, refusing puts elsewhere until space is freed")
		if trash := s.o.TrashBytes(); trash > 0 {
			log.WithField("trash_bytes", trash).Warn("deleted topics in the trash take disk space: nsqctl topic purge TOPIC removes one permanently, --delete-early removes them when the disk is short")
		}
		return
	}
	log.Info("disk space recovered, accepting puts")
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
