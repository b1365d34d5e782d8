package replica

import (
	"maps"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	// DefaultDedupeMS is the dedupe window of a topic that names none.
	DefaultDedupeMS = meta.DefaultDedupeWindowMS
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

// dedupe is the dedupe window: the identities of the newest messages, by which a message that is
// published again is recognised (DW-1). It is derived from the log, as recent is: an identity enters
// it when its batch is appended, on leader and follower alike, and leaves it when the batch is
// truncated, or when the window has passed since this machine appended it, by the machine's own
// clock.
type dedupe struct {
	windowMS int64
	bound    int
	places   map[queue.Identity]uint64 // the number of the newest entry of each
	entries  []identified              // oldest first; the first `gone` are forgotten
	gone     int
	base     uint64 // the number of entries[0]
	restored bool   // some were found by the store; their window begins with the first Tick
	lost     bool   // the store did not find all of them
	lostMS   int64  // until then an unknown identity may be that of a message in the log; 0: never
}

// identified is one message with an identity.
type identified struct {
	identity queue.Identity
	seq      ident.Sequence
	at, end  ident.Offset // of its batch
	atMS     int64        // when it was appended here
}

// load takes what the store has found.
func (d *dedupe) load(r *queue.Restored) {
	for i := range r.Identified {
		p := &r.Identified[i]
		for n, x := range p.Identities {
			d.push(identified{identity: x, seq: p.First + ident.Sequence(n), at: p.At, end: p.End})
		}
	}
	d.restored, d.lost = len(r.Identified) > 0 || r.IdentitiesLost, r.IdentitiesLost
}

// began lets the window of the restored identities begin: how long the process was away is not known.
func (d *dedupe) began(nowMS int64) {
	for i := range d.entries {
		d.entries[i].atMS = nowMS
	}
	if d.lost {
		d.lostMS = nowMS + d.windowMS
	}
	d.restored, d.lost = false, false
}

// add takes the identities of a batch that was appended.
func (d *dedupe) add(b *queue.Batch, nowMS int64) {
	b.Identities(func(n int, x queue.Identity) {
		d.push(identified{
			identity: x, seq: b.At.Sequence + ident.Sequence(n), at: b.At.Offset, end: b.End.Offset, atMS: nowMS,
		})
	})
}

func (d *dedupe) push(e identified) {
	if e.identity == (queue.Identity{}) {
		return
	}
	if d.places == nil {
		d.places = make(map[queue.Identity]uint64)
	}
	d.places[e.identity] = d.base + uint64(len(d.entries))
	d.entries = append(d.entries, e)
	if d.len() > identitySlack*d.bound { // its message may be published again: from now on this cannot be told
		d.lostMS = max(d.lostMS, d.oldest().atMS+d.windowMS)
		d.forgetOldest()
	}
}

func (d *dedupe) len() int { return len(d.entries) - d.gone }

func (d *dedupe) oldest() *identified { return &d.entries[d.gone] }

// forgetOldest removes the oldest entry.
func (d *dedupe) forgetOldest() {
	d.unname(d.gone)
	d.gone++
	if d.gone > 64 && d.gone > len(d.entries)/4 {
		d.base += uint64(d.gone)
		d.entries = append(d.entries[:0], d.entries[d.gone:]...)
		d.gone = 0
	}
	if d.len() == 0 { // a window that was once full keeps no memory
		d.base += uint64(len(d.entries))
		d.places, d.entries, d.gone = nil, nil, 0
	}
}

// unname removes the place of an entry, unless a newer entry has the identity.
func (d *dedupe) unname(i int) {
	if x := d.entries[i].identity; d.places[x] == d.base+uint64(i) {
		delete(d.places, x)
	}
}

// forget removes the identities whose window has passed (DW-2).
func (d *dedupe) forget(nowMS int64) {
	for d.len() > 0 && d.oldest().atMS < nowMS-d.windowMS {
		d.forgetOldest()
	}
}

// reachesTo is the first batch of the window, which ends at the log's end; false if some of the window
// is not known here.
func (d *dedupe) reachesTo(end ident.Offset, nowMS int64) (from ident.Offset, ok bool) {
	if d.len() > 0 {
		end = d.oldest().at
	}
	return end, d.reachesBack(nowMS)
}

// forgetBelow removes the identities of the batches below a leader's window. A replica that copies the
// log does not know by its own clock how old they are (DW-3).
func (d *dedupe) forgetBelow(from ident.Offset) {
	for d.len() > 0 && d.oldest().at < from {
		d.forgetOldest()
	}
}

// truncate forgets the identities of the batches that end above o: their messages are not stored.
func (d *dedupe) truncate(o ident.Offset) {
	n := len(d.entries)
	for n > d.gone && d.entries[n-1].end > o {
		n--
		d.unname(n)
	}
	clear(d.entries[n:])
	d.entries = d.entries[:n]
}

// find gives the newest message with an identity.
func (d *dedupe) find(x queue.Identity) (identified, bool) {
	place, ok := d.places[x]
	if !ok {
		return identified{}, false
	}
	return d.entries[place-d.base], true
}

// reachesBack reports whether the window is whole: an unknown identity is that of a new message.
func (d *dedupe) reachesBack(nowMS int64) bool { return !d.lost && nowMS >= d.lostMS }

func (d *dedupe) clone() dedupe {
	c := *d
	c.places, c.entries = maps.Clone(d.places), slices.Clone(d.entries)
	return c
}

// recognition is the result of looking for the messages of a put in the window.
type recognition struct {
	known int // messages that are in the log, or stand twice in the put
	first ident.Sequence
	any   bool         // first is the place of the put's first message
	end   ident.Offset // of the last batch that has some of them
	fresh []bool       // by number; nil: all or none
}

// recognise looks for the messages of a put. A put with one identity for all is known as a whole.
func (d *dedupe) recognise(draft *queue.Draft) (r recognition) {
	if draft.Count == 1 || draft.Whole() {
		x, _ := draft.First()
		if e, ok := d.find(x); ok {
			return recognition{known: int(draft.Count), first: e.seq, any: true, end: e.end}
		}
		return recognition{}
	}
	var within map[queue.Identity]bool // of this put
	fresh := make([]bool, 0, 8)
	draft.Identities(func(n int, x queue.Identity) {
		e, ok := d.find(x)
		switch {
		case ok:
			r.end = max(r.end, e.end)
			if n == 0 {
				r.first, r.any = e.seq, true
			}
		case x != (queue.Identity{}) && draft.Count > 1:
			if within == nil {
				within = map[queue.Identity]bool{}
			}
			ok = within[x]
			within[x] = true
		}
		if ok {
			r.known++
		}
		fresh = append(fresh, !ok)
	})
	if r.known > 0 && r.known < len(fresh) {
		r.fresh = fresh
	}
	return r
}

// published handles a put whose messages have identities (DW-1, DW-4): one whose messages are all in
// the log is answered with their place, or waits for their commit. It reports whether the put is
// dealt with.
func (m *Machine) published(p Put) bool {
	d := &m.dedupe
	r := d.recognise(&p.Draft)
	fresh := int(p.Draft.Count) - r.known
	if fresh > 0 && p.Draft.Whole() {
		fresh = 1 // identity for all of them
	}
	switch {
	case fresh == 0:
		outcome := Repeated
		if _, again := m.recent.find(p.Draft.Request); again { // the edge repeats it: the producer has published it once
			outcome = Duplicate
		}
		if r.end <= m.committed.Offset && m.role == Leader {
			m.done(p.Ticket, r.first, outcome)
		} else {
			m.await(pendingPut{ticket: p.Ticket, first: r.first, end: r.end, sentMS: m.nowMS, outcome: outcome})
		}
		return true
	case !d.reachesBack(m.nowMS):
		m.done(p.Ticket, 0, BelowWindow)
		return true
	case d.len()+fresh > d.bound:
		m.done(p.Ticket, 0, WindowFull)
		return true
	}
	return false
}

// unknownPart is the part of a put that is not in the log, and the place of the put's first message
// if that is. published has found that some of it is not.
func (m *Machine) unknownPart(draft queue.Draft) (part queue.Draft, first ident.Sequence, known bool) {
	if draft.Count == 1 || draft.Whole() {
		return draft, 0, false
	}
	r := m.dedupe.recognise(&draft)
	if r.fresh == nil {
		return draft, 0, false
	}
	return draft.Keep(func(n int) bool { return r.fresh[n] }), r.first, r.any
}

// setDedupe takes another window. A longer one holds for the identities that are still here; what a
// shorter one forgot before is unknown for as long as the longer one reaches back.
func (m *Machine) setDedupe(ev Dedupe) {
	d := &m.dedupe
	now := max(ev.WindowMS, m.o.RepeatMS)
	if now > d.windowMS {
		d.lostMS = max(d.lostMS, m.widened(now))
	}
	d.windowMS = now
}

// widened is the end of the time for which a longer window does not reach back: 0 if no identity was
// ever forgotten here.
func (m *Machine) widened(windowMS int64) int64 {
	if m.dedupe.base+uint64(m.dedupe.gone) == 0 {
		return 0
	}
	return m.nowMS + windowMS - m.dedupe.windowMS
}
