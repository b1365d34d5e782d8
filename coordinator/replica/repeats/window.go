package repeats

import (
	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/replica/canon"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	// DefaultMS is the dedupe window of a topic that names none.
	DefaultMS = meta.DefaultDedupeWindowMS
	// DefaultIdentities bounds the identities of a partition.
	DefaultIdentities = 1 << 20
	// identitySlack: a replica keeps so many times the bound before it drops one that is within its
	// own window. A replica counts the age of an identity from its own append or start, so that it
	// may have more of them than its leader.
	identitySlack = 4
)

// IdentitiesFromMS is how far back in the times of a log the window may reach, for a replica that
// starts (DW-3). newestNS is the time of the log's newest batch. Time in a log never decreases, so one
// clock that was ahead leaves it in the future: then wallNS, this machine's wall clock, counts.
func IdentitiesFromMS(newestNS, wallNS, windowMS int64) int64 {
	return min(newestNS, wallNS)/1e6 - 2*windowMS - 60_000
}

// Window is the dedupe window: the identities of the newest messages, by which a message that is
// published again is recognised (DW-1). It is derived from the log, as Requests is. An identity enters
// it when its batch is appended, on leader and follower alike. The identity leaves it when the batch is
// truncated, or when the window has passed since this machine appended the batch, by the machine's own
// clock.
type Window struct {
	windowMS int64
	bound    int
	entries  identities
	forgot   bool  // an identity was forgotten here: a longer window does not reach back at once
	restored bool  // some were found by the store; their window begins with the first Tick
	lost     bool  // the store did not find all of them
	lostMS   int64 // until then an unknown identity may be that of a message in the log; 0: never
}

// NewWindow makes the window of a log without identities. It is full with bound of them.
func NewWindow(windowMS int64, bound int) Window { return Window{windowMS: windowMS, bound: bound} }

// Load takes what the store has found.
func (d *Window) Load(r *queue.Restored) {
	for i := range r.Identified {
		p := &r.Identified[i]
		for n, x := range p.Identities {
			d.push(identified{identity: x, seq: p.First + ident.Sequence(n), at: p.At, end: p.End})
		}
	}
	d.restored, d.lost = len(r.Identified) > 0 || r.IdentitiesLost, r.IdentitiesLost
}

// Tick moves the time: the window of the identities that the store has found begins with the first one,
// and those whose window has passed are forgotten.
func (d *Window) Tick(nowMS int64) {
	if d.restored {
		d.began(nowMS)
	}
	d.forget(nowMS)
}

// began lets the window of the restored identities begin: how long the process was away is not known.
func (d *Window) began(nowMS int64) {
	for n := d.entries.first; n < d.entries.next; n++ {
		d.entries.at(n).atMS = nowMS
	}
	if d.lost {
		d.lostMS = nowMS + d.windowMS
	}
	d.restored, d.lost = false, false
}

// Add takes the identities of a batch that was appended.
func (d *Window) Add(b *queue.Batch, nowMS int64) {
	b.Identities(func(n int, x queue.Identity) {
		d.push(identified{
			identity: x, seq: b.At.Sequence + ident.Sequence(n), at: b.At.Offset, end: b.End.Offset, atMS: nowMS,
		})
	})
}

func (d *Window) push(e identified) {
	if e.identity == (queue.Identity{}) {
		return
	}
	d.entries.push(e)
	if d.Len() > identitySlack*d.bound { // its message may be published again: from now on this cannot be told
		d.lostMS = max(d.lostMS, d.entries.oldest().atMS+d.windowMS)
		d.forgetOldest()
	}
}

// Len is the number of messages with identities.
func (d *Window) Len() int { return d.entries.len() }

// Full reports whether so many further messages with identities are more than the bound.
func (d *Window) Full(fresh int) bool { return d.Len()+fresh > d.bound }

// Oldest is where the batch of the oldest message begins. There must be one.
func (d *Window) Oldest() ident.Offset { return d.entries.oldest().at }

// forgetOldest removes the oldest entry.
func (d *Window) forgetOldest() {
	d.entries.popOldest()
	d.forgot = true
}

// forget removes the identities whose window has passed (DW-2).
func (d *Window) forget(nowMS int64) {
	for d.Len() > 0 && d.entries.oldest().atMS < nowMS-d.windowMS {
		d.forgetOldest()
	}
}

// ReachesTo is the first batch of the window, which ends at the log's end; false if some of the window
// is not known here.
func (d *Window) ReachesTo(end ident.Offset, nowMS int64) (from ident.Offset, ok bool) {
	if d.Len() > 0 {
		end = d.entries.oldest().at
	}
	return end, d.ReachesBack(nowMS)
}

// ForgetBelow removes the identities of the batches below a leader's window. A replica that copies the
// log does not know by its own clock how old they are (DW-3).
func (d *Window) ForgetBelow(from ident.Offset) {
	for d.Len() > 0 && d.entries.oldest().at < from {
		d.forgetOldest()
	}
}

// Truncate forgets the identities of the batches that end above o: their messages are not stored.
func (d *Window) Truncate(o ident.Offset) {
	for d.Len() > 0 && d.entries.newest().end > o {
		d.entries.popNewest()
	}
}

// ReachesBack reports whether the window is whole: an unknown identity is that of a new message.
func (d *Window) ReachesBack(nowMS int64) bool { return !d.lost && nowMS >= d.lostMS }

// Canonical writes the canonical form.
func (d *Window) Canonical(w *canon.Writer) {
	w.Flags(d.restored, d.lost, !d.forgot)
	w.Num(uint64(d.windowMS), uint64(d.Len()))
	w.Age(d.lostMS, 0)
	for n := d.entries.first; n < d.entries.next; n++ {
		e := d.entries.at(n)
		w.B = append(w.B, e.identity[:]...)
		w.Num(uint64(e.seq), uint64(e.at), uint64(e.end))
		w.Age(e.atMS, d.windowMS)
	}
}

// Clone gives a copy that shares nothing.
func (d *Window) Clone() Window {
	c := *d
	c.entries = d.entries.clone()
	return c
}

// Recognition is the result of looking for the messages of a put in the window.
type Recognition struct {
	Known int // messages that are in the log, or stand twice in the put
	New   int // identities that are not in the log; a message without one has none
	First ident.Sequence
	Any   bool         // First is the place of the put's first message
	End   ident.Offset // of the last batch that has some of them
	Fresh []bool       // by number; nil: all or none
}

// Recognise looks for the messages of a put. A put with one identity for all is known as a whole.
func (d *Window) Recognise(draft *queue.Draft) (r Recognition) {
	if draft.Count == 1 || draft.Whole() {
		x, _ := draft.First()
		if e := d.entries.find(x); e != nil {
			return Recognition{Known: int(draft.Count), First: e.seq, Any: true, End: e.end}
		}
		return Recognition{New: 1}
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

// Resize takes another length of the window. A longer one holds for the identities that are still here;
// what a shorter one forgot before is unknown for as long as the longer one reaches back.
func (d *Window) Resize(windowMS, nowMS int64) {
	if windowMS > d.windowMS {
		d.lostMS = max(d.lostMS, d.widened(windowMS, nowMS))
	}
	d.windowMS = windowMS
}

// widened is the end of the time for which a longer window does not reach back: 0 if no identity was
// ever forgotten here.
func (d *Window) widened(windowMS, nowMS int64) int64 {
	if !d.forgot {
		return 0
	}
	return nowMS + windowMS - d.windowMS
}
