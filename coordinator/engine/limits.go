package engine

import (
	"cmp"
	"math"
	"sync/atomic"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/coordinator/replica/dedupe"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TopicOptions are the options of a topic as one of its partitions has them.
type TopicOptions struct {
	option.Topic
	PartitionMaxBytes int64 // the partition's share of MaxBytes; 0 = no limit
}

// bounds are set from the options; any goroutine reads them.
type bounds struct {
	dedupeMS atomic.Int64
	ceiling  atomic.Int64 // end of the log beyond which puts are refused, 0 = none
}

// SetOptions applies its topic's options to a partition.
func (p *Partition) SetOptions(o TopicOptions) {
	p.Limit(o.PartitionMaxBytes, p.OffsetOf(p.queue.Floor()))
	p.queue.SetTTL(o.TTLMS)
	window := cmp.Or(o.DedupeWindowMS, dedupe.DefaultMS)
	if was := p.dedupeMS.Swap(window); was != 0 && was != window { // 0: the machine starts with this value
		p.Post(replica.Dedupe{WindowMS: window})
	}
}

// ExpireIdentities has the machine forget the identities whose window has passed. An idle machine gets no ticks.
func (p *Partition) ExpireIdentities() {
	if p.view.Load().KeepsIdentified {
		p.Post(replica.Tick{})
	}
}

// Limit sets the end of the log beyond which puts are refused, so that at most that many bytes are unfinished: the log
// from floor (the position of the slowest channel), plus the deferred messages (estimated). 0 bytes: no limit.
func (p *Partition) Limit(bytes int64, floor ident.Offset) {
	if bytes <= 0 {
		p.ceiling.Store(0)
		return
	}
	start, end := p.store.Start(), p.Committed()
	deferred := int64(0)
	if n := int64(end.Sequence - start.Sequence); n > 0 {
		deferred = int64(p.queue.DeferredCount()) * int64(end.Offset-start.Offset) / n
	}
	p.ceiling.Store(max(1, int64(floor)+min(bytes, math.MaxInt64-int64(floor))-deferred))
}

// Limited reports whether Limit has set an end.
func (p *Partition) Limited() bool { return p.ceiling.Load() != 0 }

// refusal is the outcome of a put that is refused before anything is written (AC-2): its topic is deleted or full, or
// disks are below their reserve. 0 = it is admitted.
func (l *loop) refusal(p *Partition, d *queue.Draft) outcome.Outcome {
	v := p.view.Load()
	switch {
	case d.Control != 0: // of the leader itself
		return 0
	case p.Trashed():
		return outcome.NotLeader // as of a partition that is not hosted: the gateway asks the metadata
	case p.full(p.putBytes + d.Size()):
		return outcome.TopicFull
	case l.o.Reserve.Short(v.ISR) && l.roomy(v.ISR) < max(v.MinInSync, 1): // otherwise the machine holds the put (AC-9)
		return outcome.DiskFull
	}
	return 0
}

// roomy counts the members of an in-sync set that are not below their disk reserve.
func (l *loop) roomy(isr []ident.Member) (n int) {
	for i := range isr {
		if !l.o.Reserve.Short(isr[i : i+1]) {
			n++
		}
	}
	return n
}

func (p *Partition) full(bytes int) bool {
	ceiling := p.ceiling.Load()
	return ceiling != 0 && int64(p.view.Load().End.Offset)+int64(bytes) > ceiling
}
