package coordinator

import (
	"sync"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// placedChannels remembers which channels this broker has seen replicated at
// every leader, so that a subscription to one costs no round trip. A channel
// that was deleted and made again has another id.
type placedChannels struct {
	mu    sync.Mutex
	known map[placedKey]uint64
}

type placedKey struct {
	topic   ident.TopicID
	channel string
}

// maxPlaced bounds the memory: beyond it everything is asked again.
const maxPlaced = 1 << 16

func newPlaced() *placedChannels { return &placedChannels{known: map[placedKey]uint64{}} }

func (p *placedChannels) has(t ident.TopicID, channel string, id uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known[placedKey{t, channel}] == id
}

func (p *placedChannels) forget(t ident.TopicID, channel string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, placedKey{t, channel})
}

func (p *placedChannels) add(t ident.TopicID, channel string, id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) >= maxPlaced {
		clear(p.known)
	}
	p.known[placedKey{t, channel}] = id
}
