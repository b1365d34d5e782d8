package nsqd

import (
	"slices"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Trace gives the state of one message with this header in every channel, sorted by name. It reads the channels' state
// alone: deliveries keep no history. The header decides whether a message that no channel has read yet is for a channel.
func (p *Partition) Trace(seq ident.Sequence, header []byte) []api.ChannelTrace {
	out := []api.ChannelTrace{}
	for _, c := range p.list() {
		t, client := c.trace(seq, header)
		if client != nil { // called without the lock
			for _, s := range client() {
				t.Clients = append(t.Clients, s.RemoteAddress)
			}
			slices.Sort(t.Clients)
		}
		out = append(out, t)
	}
	return out
}

// trace gives the state of one message, and the clients that it is in flight to.
func (c *Channel) trace(seq ident.Sequence, header []byte) (t api.ChannelTrace, client func() []api.ClientStats) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.Channel = c.name
	e, isDeferred := c.cursor.Deferred.Get(seq)
	f, isInFlight := c.inFlight.bySeq[seq]
	switch {
	case isInFlight && f.sub == &c.deadLetterHold:
		t.State, t.Attempts = api.TraceDying, f.attempts
	case isInFlight:
		t.State, t.Attempts, t.Deadline = api.TraceInFlight, f.attempts, f.deadline
		if f.sub.channel == c {
			client = f.sub.Client
		}
	case isDeferred && e.Deadline > c.p.o.Now():
		t.State, t.Attempts, t.Deadline = api.TraceDeferred, e.Attempts(), e.Deadline
	case isDeferred:
		t.State, t.Attempts = api.TraceWaiting, e.Attempts()
	case seq < c.cursor.Start():
		t.State = api.TraceBefore
	case c.cursor.Settled(seq):
		t.State = api.TraceFinished
	case !c.selectionLocked().Accepts(header):
		t.State = api.TraceSkipped
	default:
		t.State = api.TraceWaiting
	}
	return t, client
}
