package coordinator

import (
	"sync"
	"time"
)

// maxTombstones bounds the memory; beyond it the oldest state is dropped whole.
const maxTombstones = 10_000

// tombstones are the nodes that an operator hid from /lookup of a topic. They
// are this broker's alone, as each nsqlookupd has its own.
type tombstones struct {
	lifetime time.Duration
	mu       sync.Mutex
	until    map[tombstone]time.Time
}

type tombstone struct{ topic, node string }

func newTombstones(lifetime time.Duration) *tombstones {
	return &tombstones{lifetime: lifetime, until: map[tombstone]time.Time{}}
}

func (t *tombstones) add(topic, node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.until) >= maxTombstones {
		clear(t.until)
	}
	t.until[tombstone{topic, node}] = time.Now().Add(t.lifetime)
}

func (t *tombstones) hides(topic, node string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Now().Before(t.until[tombstone{topic, node}])
}
