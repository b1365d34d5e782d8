package dedupe

import (
	"sync/atomic"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	// DefaultMS is the dedupe window of a topic that does not set one.
	DefaultMS = option.DefaultDedupeWindowMS
	// DefaultIdentities bounds the identities of a partition: 8,700 a second for the default window (ADR 12), and an
	// eighth more, because the clock of the partition stands still while it has no leader.
	DefaultIdentities = 9 << 17
	// DefaultBudget bounds the identities of a broker: as many as four such partitions have.
	DefaultBudget = 4 * DefaultIdentities
	// identitySlack is the multiple of the bound that a replica keeps before it drops identities within their window. A
	// follower cannot refuse identities, and its clock of the partition may be behind the leader's.
	identitySlack = 4
)

// Window is the dedupe window (DW-1): the identities of the newest messages, derived from the log on leader and
// follower alike. An identity enters it when its batch is appended. It leaves when the batch is truncated, or when the
// window has passed since then by the clock of the partition (queue.Clock, DW-2).
type Window struct {
	// LengthMS may be changed at any time. A longer window applies to the identities that are still present. Identities
	// that a shorter window has forgotten are in doubt until the longer window has passed.
	LengthMS  int64
	bound     int
	budget    *Budget // of the broker
	entries   identities
	clockMS   int64        // the clock of the partition at sinceMS; 0: it is stopped, because there was no identity yet
	sinceMS   int64        // in the machine's time
	ticked    bool         // the machine has received a time: before the first Tick the clock is stopped
	below     ident.Offset // entries has the identities of the batches from this offset on
	forgotten queue.Clock  // clock of the newest batch with forgotten identities; 0: none was forgotten
}

// NewWindow makes the window of a log without identities. It holds at most bound identities, within the budget of the
// broker.
func NewWindow(windowMS int64, bound int, b *Budget) Window {
	return Window{LengthMS: windowMS, bound: bound, budget: b}
}

// Release returns the window's share of the budget. It is the last call.
func (d *Window) Release() {
	d.budget.add(-d.Len())
	d.budget = nil
}

// Load adds the entries that the store found. The time during which the process was down does not count. After the mark
// the log may have batches of a leader whose clock was behind the mark's; the clock of those batches then counts.
func (d *Window) Load(r *queue.Restored) {
	mark, later := r.Identities, false
	d.below, d.forgotten = mark.From, mark.Forgotten
	for i := range r.Identified {
		p := &r.Identified[i]
		later = p.At >= mark.End
		for n, x := range p.Identities {
			d.push(identified{identity: x, seq: p.First + ident.Sequence(n), at: p.At, end: p.End, clock: p.Clock})
		}
	}
	if d.Len() > 0 {
		d.clockMS = startOf(d.newest())
	}
	if !later {
		d.clockMS = max(d.clockMS, mark.ClockMS)
	}
	if r.IdentitiesLost {
		d.forgotten = queue.ForgottenUnknown
	}
	if d.forgotten > 0 {
		d.clockMS = max(d.clockMS, 1)
		d.forgotten = min(d.forgotten, stampAt(d.clockMS))
	}
}

// Tick advances the time, and forgets the identities whose window has passed. The first Tick starts the partition's
// clock.
func (d *Window) Tick(nowMS int64) {
	if !d.ticked {
		d.sinceMS, d.ticked = nowMS, true
	}
	d.forget(nowMS)
}

// Clock is the clock of the partition in milliseconds; 0: the log has had no message with an identity.
func (d *Window) Clock(nowMS int64) int64 {
	if d.clockMS == 0 {
		return 0
	}
	return d.clockMS + max(nowMS-d.sinceMS, 0)
}

// stampAt is the clock of a batch that is appended now: one or two ticks ahead, so that no batch looks too old.
func stampAt(clockMS int64) queue.Clock {
	return queue.Clock(min(clockMS/queue.ClockTick+2, int64(queue.ForgottenUnknown)-1))
}

// startOf is the clock at the time of the append of a batch, or at most two ticks less.
func startOf(c queue.Clock) int64 { return max(int64(c)-2, 0) * queue.ClockTick }

// Stamp is the clock of a batch with identities that the leader appends now. The clock of the partition starts with the
// first such batch. No batch has a lower clock than an earlier batch.
func (d *Window) Stamp(nowMS int64) queue.Clock {
	if d.clockMS == 0 {
		d.setClock(1, nowMS)
	}
	return max(stampAt(d.Clock(nowMS)), d.newest())
}

func (d *Window) newest() queue.Clock {
	if d.Len() == 0 {
		return d.forgotten
	}
	return d.entries.newest().clock
}

func (d *Window) setClock(clockMS, nowMS int64) { d.clockMS, d.sinceMS = clockMS, nowMS }

// Follow adopts the clock of the leader, whether it is ahead of or behind the clock here (0: the leader has none). No
// batch of the leader's log, and so no batch here, is older by this clock than it really is.
func (d *Window) Follow(clockMS, nowMS int64) {
	if clockMS > 0 {
		d.setClock(max(clockMS, startOf(d.newest())), nowMS)
		d.forget(nowMS)
	}
}

// Add adds the identities of a batch that was appended.
func (d *Window) Add(b *queue.Batch, nowMS int64) {
	clock := max(b.Clock, d.newest())
	if clock == 0 {
		clock = d.Stamp(nowMS)
	}
	if d.Clock(nowMS) < startOf(clock) || d.clockMS == 0 {
		d.setClock(max(startOf(clock), 1), nowMS)
	}
	b.Identities(func(n int, x queue.Identity) {
		d.push(identified{
			identity: x, seq: b.At.Sequence + ident.Sequence(n), at: b.At.Offset, end: b.End.Offset, clock: clock,
		})
	})
}

func (d *Window) push(e identified) {
	if e.identity == (queue.Identity{}) {
		return
	}
	if d.Len() == 0 && d.forgotten == 0 {
		d.below = e.at
	}
	d.entries.push(e)
	d.budget.add(1)
	if d.Len() > identitySlack*d.bound || d.budget.exceeded() { // a repeat of its message can no longer be recognised
		d.forgetOldest()
	}
}

// Len is the number of messages with identities.
func (d *Window) Len() int { return d.entries.len() }

// Full reports whether the given number of further messages with identities would exceed the bound or the broker's
// budget.
func (d *Window) Full(fresh int) bool { return d.Len()+fresh > d.bound || d.budget.full(fresh) }

// Oldest is where the batch of the oldest message with an identity begins; false if there is no such message.
func (d *Window) Oldest() (at ident.Offset, some bool) {
	if d.Len() == 0 {
		return 0, false
	}
	return d.entries.oldest().at, true
}

func (d *Window) forgetOldest() {
	e := d.entries.oldest()
	d.below, d.forgotten = e.end, max(d.forgotten, e.clock)
	d.entries.popOldest()
	d.budget.add(-1)
}

// forget removes the identities whose window has passed (DW-2).
func (d *Window) forget(nowMS int64) {
	for d.Len() > 0 && d.passed(d.entries.oldest().clock, nowMS) {
		d.forgetOldest()
	}
}

// passed reports whether the window has passed since the append of a batch with this clock.
func (d *Window) passed(c queue.Clock, nowMS int64) bool {
	return d.Clock(nowMS)-int64(c)*queue.ClockTick > d.LengthMS
}

// Mark returns what a start needs in addition to the log, which ends at end (DW-3); zero: nothing.
func (d *Window) Mark(end ident.Offset, nowMS int64) queue.IdentityMark {
	if d.Len() == 0 && d.forgotten == 0 {
		return queue.IdentityMark{}
	}
	m := queue.IdentityMark{From: d.below, End: end, ClockMS: d.Clock(nowMS), Forgotten: d.forgotten}
	if d.Len() == 0 {
		m.From = end
	}
	return m
}

// Forgotten is the clock of the newest message whose identity was forgotten; 0: none was.
func (d *Window) Forgotten() queue.Clock { return d.forgotten }

func (d *Window) popNewest() {
	d.entries.popNewest()
	d.budget.add(-1)
}

// Truncate forgets the identities of the batches that end above o: their messages are not stored.
func (d *Window) Truncate(o ident.Offset) {
	for d.Len() > 0 && d.entries.newest().end > o {
		d.popNewest()
	}
	d.below = min(d.below, o)
}

// Restart empties the window for a log that now begins at o. forgotten is the value from the leader's window.
func (d *Window) Restart(o ident.Offset, forgotten queue.Clock) {
	for d.Len() > 0 {
		d.popNewest()
	}
	d.below, d.forgotten = o, forgotten
}

// ReachesBack reports whether the window is complete: an unknown identity then belongs to a new message.
func (d *Window) ReachesBack(nowMS int64) bool {
	return d.forgotten == 0 || d.passed(d.forgotten, nowMS)
}

// Canonical writes the canonical form.
func (d *Window) Canonical(w *CanonicalWriter) {
	w.Flags(d.ticked)
	w.Num(uint64(d.LengthMS), uint64(d.Clock(w.NowMS)), uint64(d.forgotten), uint64(d.below), uint64(d.Len()))
	for n := d.entries.first; n < d.entries.next; n++ {
		e := d.entries.at(n)
		w.B = append(w.B, e.identity[:]...)
		w.Num(uint64(e.seq), uint64(e.at), uint64(e.end), uint64(e.clock))
	}
}

// Clone returns a copy that shares nothing, and counts in no budget.
func (d *Window) Clone() Window {
	c := *d
	c.budget = nil
	c.entries = d.entries.clone()
	return c
}

// recognition is the result of looking up the messages of a put in the window.
type recognition struct {
	Known int // messages that are in the log, or occur twice in the put
	New   int // identities that are not in the log; messages without an identity are not counted
	First ident.Sequence
	Any   bool         // First is valid: the position of the put's first message
	End   ident.Offset // end of the last batch that contains some of the messages
	Fresh []bool       // whether each message is new, by number; nil: all or none are
}

// Recognise looks for the messages of a put. A put with a single identity for all its messages is known or new as a
// whole.
func (d *Window) Recognise(draft *queue.Draft) (r recognition) {
	if draft.Count == 1 || draft.HasPutIdentity() {
		x, _ := draft.First()
		if e := d.entries.find(x); e != nil {
			return recognition{Known: int(draft.Count), First: e.seq, Any: true, End: e.end}
		}
		return recognition{New: 1}
	}
	var within map[queue.Identity]bool // of this put
	fresh := make([]bool, 0, 8)
	draft.Identities(func(n int, x queue.Identity) {
		e := d.entries.find(x)
		ok := e != nil
		switch {
		case ok:
			r.End = max(r.End, e.end)
			if n == 0 {
				r.First, r.Any = e.seq, true
			}
		case x != (queue.Identity{}):
			if within == nil {
				within = map[queue.Identity]bool{}
			}
			if ok = within[x]; !ok {
				r.New++
			}
			within[x] = true
		}
		if ok {
			r.Known++
		}
		fresh = append(fresh, !ok)
	})
	if r.Known > 0 && r.Known < len(fresh) {
		r.Fresh = fresh
	}
	return r
}

// Budget counts and bounds the identities of all windows of one broker, for any goroutine. A nil Budget is unlimited.
type Budget struct {
	most int64
	used atomic.Int64
}

// budgetSlack is the multiple of its budget that a broker keeps before it drops identities within their window. It
// exceeds 1 because the leaders of the partitions that it follows have budgets of their own.
const budgetSlack = 2

// NewBudget makes a budget of this many identities.
func NewBudget(most int) *Budget { return &Budget{most: int64(most)} }

func (b *Budget) add(n int) {
	if b != nil {
		b.used.Add(int64(n))
	}
}

func (b *Budget) full(fresh int) bool { return b != nil && b.used.Load()+int64(fresh) > b.most }

func (b *Budget) exceeded() bool { return b != nil && b.used.Load() > budgetSlack*b.most }
