package nsqd

import (
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// SetTTL limits the life of all messages in ms since they were published or, if they were published
// with a delay, since they were due. 0: no limit. A message that has outlived it is finished
// instead of delivered, at the latest by Reap, or goes to the dead letters (expireFrontLocked).
func (p *Partition) SetTTL(ms int64) { p.ttl.Store(ms) }

// life is the data of one message on which its time to live depends.
type life struct {
	seq   ident.Sequence
	since int64 // unix ns; 0: unknown
	own   int64 // its own limit in ms; 0: none
}

func lifeOf(m *queue.Message) life {
	return life{seq: m.Seq, since: max(m.Time, m.DeliverAt), own: m.TTLMS()}
}

// outlived reports whether a message has outlived the topic's limit or its own.
func (p *Partition) outlived(l life, now int64) bool {
	ttl := p.ttl.Load()
	if l.own > 0 && (ttl == 0 || l.own < ttl) {
		ttl = l.own
	}
	return ttl > 0 && now-l.since >= ttl*nsPerMS
}
