package coordinator

import (
	"sync"

	"github.com/lockstepmq/lockstep/coordinator/meta"
)

// wantedChannels are the channels without a key that somebody on this broker waits
// for, by topic. Making one moves the topic's key, so of a thousand transactions at
// once only one would succeed: whoever makes a channel makes those of the others too.
type wantedChannels struct {
	mu sync.Mutex
	of map[string]map[string]*wantedChannel
}

type wantedChannel struct {
	name    string
	state   meta.ChannelState // as who came first wants it
	callers int
}

// channelsPerTxn leaves room for the topic's key.
const channelsPerTxn = meta.MaxTxn - 1

func newWanted() *wantedChannels {
	return &wantedChannels{of: map[string]map[string]*wantedChannel{}}
}

// add notes that a caller wants a channel until it calls enough.
func (w *wantedChannels) add(topic, channel string, state meta.ChannelState) (enough func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[topic] == nil {
		w.of[topic] = map[string]*wantedChannel{}
	}
	c := w.of[topic][channel]
	if c == nil {
		c = &wantedChannel{name: channel, state: state}
		w.of[topic][channel] = c
	}
	c.callers++
	return func() { w.enough(topic, c) }
}

func (w *wantedChannels) enough(topic string, c *wantedChannel) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.callers--; c.callers > 0 {
		return
	}
	if delete(w.of[topic], c.name); len(w.of[topic]) == 0 {
		delete(w.of, topic)
	}
}

// with lists a wanted channel, and after it others of its topic that have no key,
// as many as one transaction can make.
func (w *wantedChannels) with(topic, channel string, known map[string]meta.ChannelState) []wantedChannel {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := []wantedChannel{*w.of[topic][channel]}
	for name, c := range w.of[topic] {
		if _, there := known[name]; !there && name != channel && len(out) < channelsPerTxn {
			out = append(out, *c)
		}
	}
	return out
}
