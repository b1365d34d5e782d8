package dedupe

import (
	"maps"
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Requests recognises repeated puts (AC-7). It is derived from the log: batches enter it when they are appended, on
// leader and follower alike, and leave it when the log is truncated, so the next leader recognises them too.
//
// Each producer has its own table, so that other producers' puts do not push its puts out.
//
// A put is forgotten when the window has passed since this machine appended it, by the machine's own clock. The times
// in the batches are the leader's wall clock, which may jump.
type Requests struct {
	producers map[uint64]*producer
	windowMS  int64
	restored  bool // some puts were found by the store; their window begins with the first Tick
}

// producer holds the newest puts of one incarnation of an edge. An edge numbers its puts in ascending order, so a
// number above all in the table is new. Other numbers are searched for from the newest entry backwards. A map was
// rejected: it cost a follower 7 % of its CPU.
type producer struct {
	order []numbered // oldest first; the first `gone` are forgotten
	gone  int
	maxN  uint64 // no number in order is higher
}

// numbered is a compact RecentPut, because a partition with few puts keeps hundreds for a long time.
type numbered struct {
	n     uint64
	first ident.Sequence
	end   ident.Offset
	atMS  int64 // when it was appended here
	count uint32
}

// NewRequests returns the empty table of a log without puts.
func NewRequests(windowMS int64) Requests { return Requests{windowMS: windowMS} }

// Load adds the puts that the store has found.
func (r *Requests) Load(puts []queue.RecentPut) {
	for _, p := range puts {
		r.push(p, 0)
	}
	r.restored = len(puts) > 0
}

// Tick advances the time. The window of the puts that the store has found begins with the first Tick.
func (r *Requests) Tick(nowMS int64) {
	if r.restored {
		r.began(nowMS)
	}
}

// began starts the window of the restored puts, because it is unknown how long the process was away.
func (r *Requests) began(nowMS int64) {
	for _, of := range r.producers {
		for i := range of.order {
			of.order[i].atMS = nowMS
		}
	}
	r.restored = false
}

// Add adds the request id of a batch that was appended.
func (r *Requests) Add(b queue.Batch, nowMS int64) {
	if b.Request.IsZero() {
		return
	}
	r.push(queue.RecentPut{Request: b.Request, First: b.At.Sequence, Count: b.Count, End: b.End}, nowMS)
}

func (r *Requests) push(p queue.RecentPut, nowMS int64) {
	of := r.producers[p.Request.Producer]
	if of == nil {
		of = r.begin(p.Request.Producer, nowMS)
	}
	of.push(p, nowMS, nowMS-r.windowMS)
}

// begin creates the table of a new producer, and forgets the producers whose newest put is older than the window.
func (r *Requests) begin(id uint64, nowMS int64) *producer {
	if r.producers == nil {
		r.producers = make(map[uint64]*producer)
	}
	maps.DeleteFunc(r.producers, func(_ uint64, of *producer) bool { return of.newest() < nowMS-r.windowMS })
	of := &producer{}
	r.producers[id] = of
	return of
}

// Truncate forgets the puts that end above o.
func (r *Requests) Truncate(o ident.Offset) {
	maps.DeleteFunc(r.producers, func(_ uint64, of *producer) bool {
		of.truncate(o)
		return of.gone == len(of.order)
	})
}

// Find returns the newest put with a request id.
func (r *Requests) Find(id ident.RequestID) (queue.RecentPut, bool) {
	of := r.producers[id.Producer]
	if of == nil || id.IsZero() || id.N > of.maxN {
		return queue.RecentPut{}, false
	}
	for i := len(of.order) - 1; i >= of.gone; i-- {
		if p := of.order[i]; p.n == id.N {
			end := ident.Position{Offset: p.end, Sequence: p.first + ident.Sequence(p.count)}
			return queue.RecentPut{Request: id, First: p.first, Count: p.count, End: end}, true
		}
	}
	return queue.RecentPut{}, false
}

// Canonical writes the canonical form.
func (r *Requests) Canonical(w *CanonicalWriter) {
	w.Flags(r.restored)
	w.Num(uint64(len(r.producers)))
	for _, id := range slices.Sorted(maps.Keys(r.producers)) {
		of := r.producers[id]
		kept := of.order[of.gone:]
		w.Num(id, uint64(len(kept)), of.maxN)
		for i := range kept {
			p := &kept[i]
			w.Num(p.n, uint64(p.first), uint64(p.count), uint64(p.end))
			w.Age(p.atMS, r.windowMS)
		}
	}
}

// Clone returns a copy that shares nothing.
func (r *Requests) Clone() Requests {
	c := Requests{producers: make(map[uint64]*producer, len(r.producers)), windowMS: r.windowMS, restored: r.restored}
	for id, of := range r.producers {
		c.producers[id] = &producer{order: slices.Clone(of.order[of.gone:]), maxN: of.maxN}
	}
	return c
}

// push adds a put, and forgets those that were appended before sinceMS.
func (of *producer) push(p queue.RecentPut, nowMS, sinceMS int64) {
	of.order = append(of.order, numbered{n: p.Request.N, first: p.First, end: p.End.Offset, atMS: nowMS, count: p.Count})
	of.maxN = max(of.maxN, p.Request.N)
	for of.gone < len(of.order)-1 &&
		(len(of.order)-of.gone > queue.RecentPuts || of.order[of.gone].atMS < sinceMS) {
		of.gone++
	}
	if of.gone > len(of.order)/4 && of.gone > 64 {
		of.order = append(of.order[:0], of.order[of.gone:]...)
		of.gone = 0
	}
}

func (of *producer) newest() int64 { return of.order[len(of.order)-1].atMS }

func (of *producer) truncate(o ident.Offset) {
	n := len(of.order)
	for n > of.gone && of.order[n-1].end > o {
		n--
	}
	if n == len(of.order) {
		return
	}
	of.order, of.maxN = of.order[:n], 0
	for _, p := range of.order[of.gone:] {
		of.maxN = max(of.maxN, p.n)
	}
}
