package nsqd

import (
	"bytes"
	"encoding/json"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// SetTTL limits the life of all messages, in milliseconds since their put or, if
// they were put with a delay, since they were due; 0 = none. What has outlived it
// is finished instead of delivered, at the latest by Reap.
func (p *Partition) SetTTL(ms int64) { p.ttl.Store(ms) }

// life is what counts for the limits of one message.
type life struct {
	seq   ident.Sequence
	since int64 // unix ns; 0 = nothing is known
	own   int64 // its own limit in ms, 0 = none
}

func lifeOf(m *queue.Message) life {
	return life{seq: m.Seq, since: max(m.Time, m.DeliverAt), own: ttlOf(m.Header)}
}

// outlived reports whether a message has outlived the topic's limit or its own.
func (p *Partition) outlived(l life, now int64) bool {
	ttl := p.ttl.Load()
	if l.own > 0 && (ttl == 0 || l.own < ttl) {
		ttl = l.own
	}
	return ttl > 0 && now-l.since >= ttl*nsPerMS
}

// ttlOf reads a message's own limit; 0 = none.
func ttlOf(header []byte) int64 {
	if len(header) == 0 || !bytes.Contains(header, []byte(`"`+queue.HeaderTTL+`"`)) {
		return 0
	}
	var h struct {
		MS int64 `json:"##ttl_ms"`
	}
	if json.Unmarshal(header, &h) != nil {
		return 0
	}
	return min(max(h.MS, 0), maxTTLMS)
}

// maxTTLMS keeps nanoseconds within 63 bits.
const maxTTLMS = 1 << 42
