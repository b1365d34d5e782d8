package replica

import (
	"maps"
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// recent recognises repeated puts. It is derived from the log: batches enter it
// when they are appended, on leader and follower alike, and leave it when the
// log is truncated, so whoever leads next knows them too.
//
// What one producer puts never makes another's be forgotten: between a put and
// its repeat the others may have put any number.
type recent struct {
	producers map[uint64]*producer
}

// producer is the newest puts of one run of an edge. It numbers its puts upwards,
// so that one above all of them is a new one; what else is asked for is looked for
// from the newest back. A map of them cost a follower 7 % of its CPU.
type producer struct {
	order []numbered // oldest first; the first `gone` are dropped
	gone  int
	maxN  uint64 // no number in order is above
}

// numbered is a RecentPut without what its producer and the others tell: a
// partition that is put to once in a while remembers hundreds.
type numbered struct {
	n      uint64
	first  ident.Sequence
	end    ident.Offset
	timeNS int64
	count  uint32
}

func (r *recent) load(puts []queue.RecentPut) {
	for _, p := range puts {
		r.push(p)
	}
}

func (r *recent) add(b queue.Batch) {
	if b.Request.IsZero() {
		return
	}
	r.push(queue.RecentPut{Request: b.Request, First: b.At.Sequence, Count: b.Count, End: b.End, TimeNS: b.Time})
}

func (r *recent) push(p queue.RecentPut) {
	of := r.producers[p.Request.Producer]
	if of == nil {
		of = r.begin(p)
	}
	of.push(p)
}

// begin makes room for a new producer, and forgets those that ended long ago.
func (r *recent) begin(p queue.RecentPut) *producer {
	if r.producers == nil {
		r.producers = make(map[uint64]*producer)
	}
	maps.DeleteFunc(r.producers, func(_ uint64, of *producer) bool { return of.newest() < p.TimeNS-queue.RecentNS })
	of := &producer{}
	r.producers[p.Request.Producer] = of
	return of
}

// truncate forgets what ends above o.
func (r *recent) truncate(o ident.Offset) {
	maps.DeleteFunc(r.producers, func(_ uint64, of *producer) bool {
		of.truncate(o)
		return of.gone == len(of.order)
	})
}

func (r *recent) find(id ident.RequestID) (queue.RecentPut, bool) {
	of := r.producers[id.Producer]
	if of == nil || id.IsZero() || id.N > of.maxN {
		return queue.RecentPut{}, false
	}
	for i := len(of.order) - 1; i >= of.gone; i-- {
		if p := of.order[i]; p.n == id.N {
			end := ident.Position{Offset: p.end, Sequence: p.first + ident.Sequence(p.count)}
			return queue.RecentPut{Request: id, First: p.first, Count: p.count, End: end, TimeNS: p.timeNS}, true
		}
	}
	return queue.RecentPut{}, false
}

func (r *recent) clone() recent {
	c := recent{producers: make(map[uint64]*producer, len(r.producers))}
	for id, of := range r.producers {
		c.producers[id] = &producer{order: slices.Clone(of.order[of.gone:]), maxN: of.maxN}
	}
	return c
}

func (of *producer) push(p queue.RecentPut) {
	of.order = append(of.order, numbered{n: p.Request.N, first: p.First, end: p.End.Offset, timeNS: p.TimeNS, count: p.Count})
	of.maxN = max(of.maxN, p.Request.N)
	for of.gone < len(of.order)-1 &&
		(len(of.order)-of.gone > queue.RecentPuts || of.order[of.gone].timeNS < p.TimeNS-queue.RecentNS) {
		of.gone++
	}
	if of.gone > len(of.order)/4 && of.gone > 64 {
		of.order = append(of.order[:0], of.order[of.gone:]...)
		of.gone = 0
	}
}

// newest is the time of the newest put.
func (of *producer) newest() int64 { return of.order[len(of.order)-1].timeNS }

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
