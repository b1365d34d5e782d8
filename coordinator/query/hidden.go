package query

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

const (
	maxHidden   = 10_000      // entries; beyond that all of them are dropped
	maxNode     = 260         // bytes of a node's address: the longest DNS name with a port
	hideTimeout = time.Second // timeout of the calls that notify the other brokers
)

// hiddenNodes are the nodes that an operator hid from lookups of a topic for a while. They are only in memory; the brokers
// notify each other.
type hiddenNodes struct {
	lifetime time.Duration
	mu       sync.Mutex
	until    map[hiddenNode]time.Time
}

type hiddenNode struct{ topic, node string }

// hiddenFor is how long a tombstoned node is hidden from lookups.
const hiddenFor = 45 * time.Second

func newHiddenNodes(lifetime time.Duration) *hiddenNodes {
	return &hiddenNodes{lifetime: lifetime, until: map[hiddenNode]time.Time{}}
}

func (h *hiddenNodes) add(topic, node string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.until) >= maxHidden {
		clear(h.until)
	}
	h.until[hiddenNode{topic, node}] = time.Now().Add(h.lifetime)
}

func (h *hiddenNodes) hides(topic, node string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Before(h.until[hiddenNode{topic, node}])
}

// Tombstone hides a node from Lookup of a topic for a while (api.Directory), on every broker that answers. The node
// itself must be notified: nsqadmin's next request tells the node to delete its own copy of the topic, which in
// Lockstep would delete the topic of the whole cluster.
func (d *Directory) Tombstone(topic, node string) error {
	if len(node) > maxNode {
		return fmt.Errorf("%w: node has %d bytes, at most %d", outcome.ErrInvalid, len(node), maxNode)
	}
	if _, ok := d.o.Catalog.Topic(topic); !ok {
		return nil // nothing to hide; tools send the request to every nsqlookupd on their list
	}
	d.hidden.add(topic, node)
	ctx, cancel := context.WithTimeout(context.Background(), hideTimeout)
	defer cancel()
	var notified sync.WaitGroup
	var unaware atomic.Bool
	for _, r := range d.o.Catalog.LiveNodes() {
		if r.Name == d.o.Self.Name {
			continue
		}
		notified.Go(func() {
			_, err := calls.Hide.Ask(ctx, d.o.Caller, r.Name, calls.HideNotice{Topic: topic, Node: node})
			if err != nil && address(r.NodeState) == node {
				unaware.Store(true)
			}
		})
	}
	notified.Wait()
	if unaware.Load() {
		return fmt.Errorf("%w: %s does not answer", outcome.ErrUnavailable, node)
	}
	return nil
}

// Hide handles another broker's notification that a node is hidden (calls.Hide).
func (d *Directory) Hide(n calls.HideNotice) { d.hidden.add(n.Topic, n.Node) }

// HidesSelf reports whether this broker is hidden from lookups of a topic.
func (d *Directory) HidesSelf(topic string) bool { return d.hidden.hides(topic, address(d.o.Self)) }
