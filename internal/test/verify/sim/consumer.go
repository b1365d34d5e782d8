package sim

import (
	"context"
	"math/rand/v2"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/nsqd"
)

// consumer is the one client of a partition's channel. It follows a node that takes
// itself for the leader, and finishes, requeues or forgets each delivery.
type consumer struct {
	w     *world
	part  int
	rand  *rand.Rand
	drain bool // finishes everything

	at  *host
	ch  *nsqd.Channel
	sub *nsqd.Subscriber
	out map[uint64]micros // deliveries to sub by their numbers, and when they came
}

func (c *consumer) next() {
	if c.w.failure != nil {
		return
	}
	c.w.after(c.pause(), c.next)
	n := c.w.nodes[c.rand.IntN(len(c.w.nodes))]
	if c.drain {
		n = c.w.nodes[c.w.nodeIndex(c.w.etcd.parts[c.part].Leader)]
	}
	n.post(n.boot, func() {
		if h := n.hosts[c.part]; h != nil && h.leads != 0 && c.attach(h) {
			c.pull()
		}
	})
}

// pause is the time to the next look. An ordered channel gives one message at a
// time, so its consumer is quicker than the producers.
func (c *consumer) pause() micros {
	if c.drain || c.w.scenario.ordered {
		return millisecond
	}
	return c.w.pace + micros(c.rand.Int64N(int64(2*c.w.pace)))
}

// attach subscribes at a leader, and makes the channel where there is none.
func (c *consumer) attach(h *host) bool {
	if c.at == h && c.ch.Err(c.sub) == nil {
		return true
	}
	if c.at != nil {
		c.ch.Detach(c.sub, false)
	}
	ch, ok := h.queue.Channel(channel)
	if !ok {
		ended, cancel := context.WithCancel(context.Background())
		cancel() // the caller does not wait: the change is replicated nonetheless
		_, _ = h.queue.CreateChannel(ended, channel, nsqd.ChannelOptions{Origin: nsqd.FromEarliest, Ordered: c.w.scenario.ordered})
		return false
	}
	sub := &nsqd.Subscriber{Direct: true}
	if ch.Attach(sub) != nil {
		c.at = nil
		return false
	}
	c.at, c.ch, c.sub, c.out = h, ch, sub, map[uint64]micros{}
	return true
}

// pull takes what there is and plans what becomes of it.
func (c *consumer) pull() {
	for _, d := range c.ch.Pull(c.sub, 1+c.rand.IntN(64), nil) {
		c.w.check.delivered(c.at, d)
		at, ch, sub, out, d := c.at, c.ch, c.sub, c.out, d
		out[d.Number] = c.w.now
		work := micros(c.rand.Int64N(int64(c.pause())))
		fate := func() { delete(out, d.Number); at.finish(ch, sub, d) }
		switch chance := c.rand.IntN(100); {
		case c.drain || chance < 85:
		case chance < 96:
			delay := c.rand.Int64N(int64(3*c.w.times.isr)) / int64(millisecond)
			switch {
			case c.w.scenario.ordered: // the channel waits with it
				delay %= 16
			case chance >= 94: // retention will come to it first
				delay *= 12
			}
			fate = func() { // timed out in the meantime: no matter
				delete(out, d.Number)
				_ = ch.Requeue(sub, nsqd.ReceiptOf(&d), delay)
			}
		default:
			continue // forgotten: it times out
		}
		boot := at.n.boot
		c.w.after(work, func() { at.n.post(boot, fate) })
	}
}

// finish settles a delivery here. Its delta is on its way or follows with the next tick.
func (h *host) finish(ch *nsqd.Channel, sub *nsqd.Subscriber, d api.Delivery) {
	h.changing = true
	h.finishes = append(h.finishes, d.Message.Seq)
	n := len(h.finishes)
	h.n.w.check.finishing(h, d)
	if ch.Finish(sub, nsqd.ReceiptOf(&d)) != nil && len(h.finishes) == n {
		h.finishes = h.finishes[:n-1] // timed out in the meantime
	}
	h.changing = false
}
