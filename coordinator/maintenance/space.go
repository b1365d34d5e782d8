package maintenance

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
	"github.com/sirupsen/logrus"
)

const (
	// spaceEvery is the interval of the disk checks, and of the reports of a broker that is short of space. The reserve
	// has to last for twice that.
	spaceEvery = 200 * time.Millisecond
	// spaceBack is how long a disk has to be above its reserve before the broker counts as having room. Otherwise a
	// broker near the limit would constantly leave and rejoin the in-sync sets.
	spaceBack      = 5 * time.Second
	spaceForgotten = 10 * spaceEvery // how long another broker's report about its disk is valid
)

// Space tracks the brokers that are below their disk reserve, and monitors the disk here. It notifies the machines of
// each change. Such a broker leaves the in-sync sets whose other members satisfy the minimum (AC-10), and transfers the
// leaderships that such a member can take. Puts to other partitions with it in the in-sync set are refused before
// anything is written: a full disk would stop that member's store. Finishes, deletions and everything else that frees
// space still succeed.
type Space struct {
	*Broker
	was   bool        // below the reserve at the last check; owned by the goroutine
	below time.Time   // when a check last found it below; owned by the goroutine
	any   atomic.Bool // some broker is below its reserve: the common answer costs one load
	mu    struct {    // held while events are posted
		sync.Mutex
		until map[ident.Node]time.Time
	}
}

func newSpace(b *Broker) *Space {
	s := &Space{Broker: b}
	s.mu.until = map[ident.Node]time.Time{}
	return s
}

// Begin checks the disk before a replica is opened: a broker that starts with a full disk accepts no data.
func (s *Space) Begin() {
	if s.was = s.belowReserve(); s.was {
		s.below = time.Now()
		s.set(s.Self, true, s.below)
		s.log(true)
	}
}

func (s *Space) anyOf(nodes []ident.Node) bool { return slices.ContainsFunc(nodes, s.Low) }

// Low reports whether a broker is below its reserve.
func (s *Space) Low(n ident.Node) bool {
	if !s.any.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lowLocked(n)
}

func (s *Space) lowLocked(n ident.Node) bool {
	_, low := s.mu.until[n]
	return low
}

// Short reports whether a member of an in-sync set is below its reserve (engine.Options.Reserve).
func (s *Space) Short(isr []ident.Member) bool {
	return s.any.Load() && slices.ContainsFunc(isr, func(m ident.Member) bool { return s.Low(m.Node) })
}

// Lacking counts the partitions led here whose puts are refused for lack of space: fewer in-sync members than the minimum have
// room.
func (s *Space) Lacking() (n int) {
	for _, p := range s.Engine.Partitions() {
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

// Introduce posts the brokers that are below their reserve (replicas.Space).
func (s *Space) Introduce(nodes []ident.Node, post func(replica.Event)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range nodes {
		if s.lowLocked(n) {
			post(replica.Space{Node: n, Low: true})
		}
	}
}

// Notice handles another broker's report about its disk (calls.Space).
func (s *Space) Notice(n calls.SpaceNotice) { s.set(n.Node, n.Low, time.Now()) }

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

func (s *Space) changedLocked(n ident.Node, was, low bool) {
	s.any.Store(len(s.mu.until) > 0)
	if was == low {
		return
	}
	for _, p := range s.Engine.Partitions() {
		p.Post(replica.Space{Node: n, Low: low})
	}
}

// expire drops other brokers without a recent report. This broker has room when a check finds so, however late.
func (s *Space) expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, until := range s.mu.until {
		if n != s.Self && now.After(until) {
			delete(s.mu.until, n)
			s.changedLocked(n, true, false)
		}
	}
}

// TrashBytes is the size of the replicas here whose topics are in the trash.
func (s *Space) TrashBytes() (sum int64) {
	for _, p := range s.Engine.Partitions() {
		if p.Trashed() {
			sum += p.Store().DiskBytes()
		}
	}
	return sum
}

// run checks the disk, and notifies the others while it is short of space, and once when it no longer is.
func (s *Space) run(ctx context.Context) {
	now := time.Now()
	s.expire(now)
	low := s.belowReserve()
	if low {
		s.below = now
	}
	low = low || s.was && now.Sub(s.below) < spaceBack
	if low || s.was {
		s.set(s.Self, low, now)
		s.notify(ctx, low)
	}
	if low != s.was {
		s.log(low)
	}
	if s.was = low; low {
		s.giveWay()
	}
}

// giveWay transfers the leaderships of partitions for which enough other members have room.
func (s *Space) giveWay() {
	for _, p := range s.Engine.Partitions() {
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
		inSync := ident.HasMember(v.ISR, n)
		if !inSync || s.Low(n) || !s.Alive(n) {
			continue
		}
		if roomy++; roomy == 1 {
			to = n
		}
	}
	return to, roomy >= max(v.MinInSync, 1)
}

// belowReserve checks the free space and the size of the logs. If the file system does not report the free space, it repeats
// the last result.
func (s *Space) belowReserve() bool {
	if limit := s.MaxDiskBytes; limit > 0 {
		used := int64(0)
		for _, p := range s.Store.Partitions() {
			used += p.DiskBytes()
		}
		if used >= limit {
			return true
		}
	}
	free, err := s.Store.FreeBytes()
	if err != nil {
		return s.was
	}
	return s.MinFreeBytes > 0 && free < uint64(s.MinFreeBytes)
}

func (s *Space) log(low bool) {
	free, _ := s.Store.FreeBytes() // for the log only
	log := s.Log.WithFields(logrus.Fields{"free_bytes": free, "min_free_bytes": s.MinFreeBytes, "max_disk_bytes": s.MaxDiskBytes})
	if low {
		log.Error("disk reserve reached: leaving in-sync sets and leaderships where enough other replicas have room, refusing puts elsewhere until space is freed")
		if trash := s.TrashBytes(); trash > 0 {
			log.WithField("trash_bytes", trash).Warn("deleted topics in the trash take disk space: nsqctl topic purge TOPIC removes one permanently, --delete-early removes them when the disk is short")
		}
		return
	}
	log.Info("disk space recovered, accepting puts")
}

// notify notifies every broker that answers. The next call repeats it for a broker that missed it.
func (s *Space) notify(ctx context.Context, low bool) {
	ctx, cancel := context.WithTimeout(ctx, spaceEvery)
	defer cancel()
	others := s.Others()
	concurrency.Each(len(others), len(others), func(i int) {
		_, _ = calls.Space.Ask(ctx, s.Caller, others[i], calls.SpaceNotice{Node: s.Self, Low: low})
	})
}
