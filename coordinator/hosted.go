package coordinator

import (
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/store"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// machine is what a loop needs of replica.Machine.
type machine interface {
	Step(ev replica.Event, out *replica.Effects)
	View() replica.View
	Idle() bool
	Committing() bool
}

// ticket is who waits for a Completion: a put's Completer, or nsqd with its own
// number for a change of channel state.
type ticket struct {
	put             Completer
	at              time.Time // when the put was handed in
	proposed        time.Time // when the loop came to it
	messages, bytes int       // of the put; bytes of bodies
	change          uint64
}

// hosted is one partition on this broker: its machine, its store, its channels.
// All fields of the first group are set before the loop gets it and never
// change (queue, store and view may be used by any goroutine); those of the
// second belong to the loop's goroutine.
type hosted struct {
	id    ident.Partition
	topic string
	loop  *loop
	store *store.Partition
	queue *nsqd.Partition
	view  atomic.Pointer[replica.View]
	due   due
	dead  atomic.Bool // channels have messages that failed too often
	// burying is set while they are moved.
	burying atomic.Bool
	// ceiling is the end of the log beyond which puts are refused, 0 = none.
	ceiling atomic.Int64
	// muted is set while the replica may be trashed: what the machine sends is lost.
	muted atomic.Bool

	machine    machine
	out        replica.Effects
	puts       []replica.Put // gathered, not yet proposed
	putBytes   int
	tickets    map[uint64]ticket
	lastTicket uint64
	tickMS     int64 // of the last Tick
	company    company
	touched    bool // something was stepped in this pass
	waiting    bool // in loop.waiting
	held       bool // in loop.held
	active     bool // needs ticks
	leads      ident.Epoch
	alarm      string // logged last
	alarmAt    time.Time

	// Retention's.
	left    time.Time // when a new file was last begun here for want of space
	tooMuch tooMuch
	ends    []endAt // see repeatsFrom

	told []ident.Node // replicas the machine was told of; the watcher's
}

// View is the machine's last published view; any goroutine.
func (h *hosted) View() *replica.View { return h.view.Load() }

// Leading reports whether this broker serves the partition; any goroutine.
func (h *hosted) Leading() bool { return h.view.Load().Role == replica.Leader }

// newTicket remembers who waits. Tickets start at 1: 0 asks for no answer.
func (h *hosted) newTicket(t ticket) uint64 {
	h.lastTicket++
	h.tickets[h.lastTicket] = t
	return h.lastTicket
}

// complete answers one ticket.
func (h *hosted) complete(c replica.Completion) {
	t, ok := h.tickets[c.Ticket]
	if !ok {
		return
	}
	delete(h.tickets, c.Ticket)
	if t.put != nil {
		h.loop.answer(t.put, c)
		h.loop.count(h, t, c.Outcome)
		return
	}
	h.queue.Completed(t.change, c.Outcome == replica.Committed)
}

// abandon answers everything that still waits when the machine goes: what was
// written may be committed by a later leader.
func (h *hosted) abandon() {
	for n := range h.tickets {
		h.complete(replica.Completion{Ticket: n, Outcome: replica.InDoubt})
	}
	if h.leads != 0 {
		h.leads = 0
		h.queue.Unlead()
	}
	h.view.Store(&replica.View{Role: replica.Stopped})
}

// publish shows the machine's view, if it is another, and tells the channels what
// moved. It reports whether leadership or the key, as readers see it, changed.
func (h *hosted) publish() bool {
	now, old := h.machine.View(), h.view.Load()
	if now.Equal(old) {
		return false // most passes move nothing: puts that gather, heartbeats
	}
	v := new(replica.View)
	*v = now
	if old.Role == replica.Leader && (v.Role != replica.Leader || v.Epoch != h.leads) {
		h.leads = 0
		h.view.Store(v)
		h.queue.Unlead()
	}
	h.view.Store(v)
	if v.Committed != old.Committed {
		h.queue.Advance(v.Committed)
	}
	if v.Role == replica.Leader && h.leads == 0 {
		h.leads = v.Epoch
		h.queue.Lead(v.Epoch)
	}
	h.loop.countEvents(old, v)
	return v.Role != old.Role || v.Epoch != old.Epoch || v.Leader != old.Leader
}

// Change posts a delta of the channels to the machine (nsqd.Replicator).
func (h *hosted) Change(_ *nsqd.Partition, delta []byte, number uint64) {
	if !h.loop.mail.post(work{kind: workChange, id: h.id, delta: delta, ticket: number, hosted: h}) && number != 0 {
		h.queue.Completed(number, false)
	}
}

// Committed, Start and Read are the log as the channels read it (nsqd.Log).
func (h *hosted) Committed() ident.Position { return h.view.Load().Committed }

// Start is the first position that the store still holds.
func (h *hosted) Start() ident.Position { return h.store.Start() }

// readBytes is how much of the log one Read of a channel asks the store for at
// most; a few messages need less.
const readBytes = 256 << 10

// Read appends messages from a sequence on, never beyond the committed end.
func (h *hosted) Read(from ident.Sequence, max int, dst []queue.Message) ([]queue.Message, error) {
	end := h.Committed()
	if from >= end.Sequence || max <= 0 {
		return dst, nil
	}
	max = min(max, int(end.Sequence-from))
	average := int(end.Offset/ident.Offset(end.Sequence)) + 1
	batches, err := h.store.ReadSequence(from, min(readBytes, 2*max*average)) // at least one batch
	want := len(dst) + max
	for i := range batches {
		if batches[i].End.Offset > end.Offset || len(dst) >= want {
			break
		}
		had := len(dst)
		dst = batches[i].Messages(from, want-had, dst)
		detach(dst[had:], &batches[i])
	}
	if len(dst) > want-max {
		return dst, nil
	}
	return dst, err
}

// largeBatch is one that is not worth keeping for a small part of it.
const largeBatch = 64 << 10

// detach copies messages out of a large batch of which they are a small part: whoever
// holds one of them would hold all of it, and a client may be sent hundreds that come
// again, each read by itself.
func detach(few []queue.Message, b *queue.Batch) {
	size := 0
	for i := range few {
		size += few[i].Size()
	}
	if len(b.Bytes) < largeBatch || size > len(b.Bytes)/4 {
		return
	}
	room := make([]byte, 0, size)
	own := func(x []byte) []byte {
		at := len(room)
		room = append(room, x...)
		return room[at:len(room):len(room)]
	}
	for i := range few {
		few[i].Header, few[i].Body = own(few[i].Header), own(few[i].Body)
	}
}
