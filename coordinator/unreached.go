package coordinator

import (
	"context"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// unreachedEvery is how often a broker looks whether it can reach the replicas
// of what it leads.
const unreachedEvery = 250 * time.Millisecond

// keepUnreached tells the others, through the metadata, which brokers this one
// cannot reach, while a partition led here lacks its minimum because of them: a
// leader that reaches the metadata but not its replicas is in the way of members
// that reach each other. Saying so is also the proof that the metadata is
// reached. What was told before is read from the metadata: an answer that was
// lost does not say, and a leader whose old word stands is replaced again and
// again. Started by start, ends with the broker.
func (b *Broker) keepUnreached(ctx context.Context) {
	every(ctx, unreachedEvery, func() {
		now := b.missed()
		told, ok := b.catalog.liveNode(b.self)
		if b.stopping.Load() || !ok || told.Incarnation != b.Incarnation() || slices.Equal(now, told.Unreached) {
			return
		}
		try, cancel := context.WithTimeout(ctx, txnTimeout)
		defer cancel()
		if err := b.session.unreached(try, now); err == nil {
			b.log.WithField("nodes", now).Warn("UNREACHED brokers, as told to the others")
		}
	})
}

// missed lists the brokers that have been silent for T_isr if a partition led
// here lacks its minimum without them; else nothing.
func (b *Broker) missed() []ident.Node {
	silent := b.members.silent(b.catalog.nodes(), time.Duration(b.o.Replica.ISRMS)*time.Millisecond)
	if len(silent) == 0 {
		return nil
	}
	for _, h := range b.hosted() {
		if s, ok := b.catalog.partition(h.id); ok && s.Leader == b.self && replica.Lacks(s, silent) {
			return silent
		}
	}
	return nil
}

// cutOff reports whether a partition's living leader is another broker that is to be
// replaced although it lives.
func (b *Broker) cutOff(s meta.PartitionState, r registration) bool {
	return r.Name == s.Leader && r.Name != b.self && r.Incarnation == s.LeaderIncarnation && replica.CutOff(s, r.Unreached, b.members.up)
}

// tellLive tells the machines of a broker's registration.
func (b *Broker) tellLive(n ident.Node) {
	for _, h := range b.hosted() {
		if s, ok := b.catalog.partition(h.id); ok && concerns(s, n) {
			h.loop.post(h.id, b.liveEvent(s, n))
		}
	}
}

// judgeLeaders looks again at the leaders that say they are cut off, because what
// this broker reaches has changed.
func (b *Broker) judgeLeaders() {
	for _, r := range b.catalog.lives() {
		if len(r.Unreached) > 0 {
			b.tellLive(r.Name)
		}
	}
}
