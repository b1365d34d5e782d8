package nsqd

import (
	"bytes"
	"encoding/json"

	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// SetTTL limits the life of all messages, in milliseconds since their put or, if
// they were put with a delay, since they were due; 0 = none. What has outlived it
// is finished instead of delivered.
func (p *Partition) SetTTL(ms int64) { p.ttl.Store(ms) }

// expired reports whether a message has outlived the topic's limit or its own.
func (p *Partition) expired(m *queue.Message, now int64) bool {
	ttl := p.ttl.Load()
	if own := ttlOf(m.Header); own > 0 && (ttl == 0 || own < ttl) {
		ttl = own
	}
	return ttl > 0 && now-max(m.Time, m.DeliverAt) >= ttl*nsPerMS
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
