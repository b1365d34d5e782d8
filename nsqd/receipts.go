package nsqd

import (
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
)

// Receipt names one delivery: no other delivery of the partition has the same epoch and number. Every
// verb compares it, because the attempts do not tell deliveries apart: a delivery that is withdrawn gives
// its attempt back.
type Receipt struct {
	Sequence ident.Sequence
	Epoch    ident.Epoch // of the leader that made the delivery
	Number   uint64      // the leader counts its deliveries
	// Attempts is the number of attempts, including the delivery; 0: unknown. It names nothing. A later
	// leader judges by it whether the message has failed since.
	Attempts uint16
}

// ReceiptOf is the receipt of a delivery.
func ReceiptOf(d *api.Delivery) Receipt {
	return Receipt{Sequence: d.Message.Seq, Epoch: d.Epoch, Number: d.Number, Attempts: d.Message.Attempts}
}

// is reports whether the receipt names this delivery.
func (r Receipt) is(f *delivery) bool { return r.Epoch == f.epoch && r.Number == f.number }

// since reports whether the message, whose state is e, has failed since the delivery.
func (r Receipt) since(e cursor.Entry) bool { return r.Attempts > 0 && e.Attempts() >= r.Attempts }

// Awaited reports whether a delivery that is refused may still come into flight: it was made before this leadership
// began, and its edge may not have reclaimed it yet. The leadership before may have been of the same epoch, if this
// broker leads on after a transfer that was abandoned.
func (c *Channel) Awaited(r Receipt) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, there := c.inFlight.bySeq[r.Sequence]
	e, isDeferred := c.cursor.Deferred.Get(r.Sequence)
	earlier := r.Epoch < c.serving.epoch || r.Epoch == c.serving.epoch && r.Number <= c.serving.delivered
	return !there && earlier && !c.serving.seeked && r.Sequence < c.limit &&
		!r.since(e) && (isDeferred && e.Deadline == 0 || !isDeferred && !c.cursor.Settled(r.Sequence))
}
