package admin

import (
	"sync"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// pendingChannels has the channels without a key that callers on this broker wait for, by topic. Each creation changes
// the topic's key, so of a thousand concurrent transactions only one would succeed. Therefore a caller creates the
// channels of the others too.
type pendingChannels struct {
	mu sync.Mutex
	of map[string]map[string]*pendingChannel
}

type pendingChannel struct {
	name    string
	state   metadata.ChannelState // as the first caller requested it
	callers int
}

// channelsPerTxn leaves room for the topic's key.
const channelsPerTxn = metadata.MaxTxn - 1

func newPendingChannels() *pendingChannels {
	return &pendingChannels{of: map[string]map[string]*pendingChannel{}}
}

// add registers a caller that waits for a channel until it calls done.
func (p *pendingChannels) add(topic, channel string, state metadata.ChannelState) (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[topic] == nil {
		p.of[topic] = map[string]*pendingChannel{}
	}
	c := p.of[topic][channel]
	if c == nil {
		c = &pendingChannel{name: channel, state: state}
		p.of[topic][channel] = c
	}
	c.callers++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if c.callers--; c.callers > 0 {
			return
		}
		if delete(p.of[topic], channel); len(p.of[topic]) == 0 {
			delete(p.of, topic)
		}
	}
}

// with lists a pending channel, then others of its topic without a key, as many as one transaction can create.
func (p *pendingChannels) with(topic, channel string, known map[string]metadata.ChannelState) []pendingChannel {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := []pendingChannel{*p.of[topic][channel]}
	for name, c := range p.of[topic] {
		if _, there := known[name]; !there && name != channel && len(out) < channelsPerTxn {
			out = append(out, *c)
		}
	}
	return out
}

// createdChannels is the creation cache: the channels that every leader has replicated, as this broker knows, so that a
// subscription needs no round trip. A recreated channel has another id.
type createdChannels struct {
	mu    sync.Mutex
	known map[createdChannel]uint64
}

type createdChannel struct {
	topic   ident.TopicID
	channel string
}

// maxCreated bounds the cache: beyond it all leaders are asked again.
const maxCreated = 1 << 16

func newCreatedChannels() *createdChannels {
	return &createdChannels{known: map[createdChannel]uint64{}}
}

func (c *createdChannels) has(t ident.TopicID, channel string, id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[createdChannel{t, channel}] == id
}

func (c *createdChannels) forget(t ident.TopicID, channel string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, createdChannel{t, channel})
}

func (c *createdChannels) add(t ident.TopicID, channel string, id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= maxCreated {
		clear(c.known)
	}
	c.known[createdChannel{t, channel}] = id
}
