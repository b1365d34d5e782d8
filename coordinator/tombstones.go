package coordinator

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// maxTombstones bounds the memory; beyond it the oldest state is dropped whole.
const maxTombstones = 10_000

// hideTimeout bounds the telling of a tombstone to the others.
const hideTimeout = time.Second

// tombstones are the nodes that an operator hid from /lookup of a topic, for a
// while. They are in memory only; the brokers tell each other.
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

// hideNotice tells a broker of a tombstone.
type hideNotice struct{ Topic, Node string }

// Tombstone hides a node from Lookup of a topic for a while (edge.Directory), on
// every broker that answers. The node itself has to know: nsqadmin's next request
// asks it to delete the topic, and means its own copy of it – here that would be
// everybody's.
func (b *Broker) Tombstone(topic, node string) error {
	if _, ok := b.catalog.topic(topic); !ok {
		return nil // nothing is to be hidden; tools ask every nsqlookupd they know
	}
	b.hidden.add(topic, node)
	ctx, cancel := context.WithTimeout(context.Background(), hideTimeout)
	defer cancel()
	var calls sync.WaitGroup
	var unaware atomic.Bool
	for _, r := range b.catalog.lives() {
		if r.Name == b.self {
			continue
		}
		calls.Go(func() {
			err := b.rpc.Call(ctx, r.Name, methodHide, hideNotice{Topic: topic, Node: node}, &none{})
			if err != nil && address(r.NodeState) == node {
				unaware.Store(true)
			}
		})
	}
	calls.Wait()
	if unaware.Load() {
		return fmt.Errorf("%w: %s does not answer", edge.ErrUnavailable, node)
	}
	return nil
}

// selfAddress is what this broker is called in tombstones.
func (b *Broker) selfAddress() string { return address(b.o.Node) }
