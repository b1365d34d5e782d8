package replica

import (
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	// recentBatches and recentNS bound how far back a repeated put is
	// recognised. No edge retries longer than its put limit (9 s).
	recentBatches = 1 << 16
	recentNS      = 60e9
)

// recent recognises repeated puts. It is derived from the log: batches enter it
// when they are appended, on leader and follower alike, and leave it when the
// log is truncated, so whoever leads next knows them too.
type recent struct {
	byID  map[ident.RequestID]queue.RecentPut
	order []queue.RecentPut // oldest first; the first `gone` are dropped
	gone  int
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
	if r.byID == nil {
		r.byID = make(map[ident.RequestID]queue.RecentPut)
	}
	r.byID[p.Request] = p
	r.order = append(r.order, p)
	for r.gone < len(r.order)-1 &&
		(len(r.order)-r.gone > recentBatches || r.order[r.gone].TimeNS < p.TimeNS-recentNS) {
		r.drop(r.order[r.gone])
		r.gone++
	}
	if r.gone > len(r.order)/2 && r.gone > 64 {
		r.order = append(r.order[:0], r.order[r.gone:]...)
		r.gone = 0
	}
}

// drop forgets an id unless a later batch carries it too.
func (r *recent) drop(p queue.RecentPut) {
	if r.byID[p.Request].End == p.End {
		delete(r.byID, p.Request)
	}
}

// truncate forgets what ends above o.
func (r *recent) truncate(o ident.Offset) {
	n := len(r.order)
	for n > r.gone && r.order[n-1].End.Offset > o {
		r.drop(r.order[n-1])
		n--
	}
	r.order = r.order[:n]
}

func (r *recent) find(id ident.RequestID) (queue.RecentPut, bool) {
	if id.IsZero() {
		return queue.RecentPut{}, false
	}
	p, ok := r.byID[id]
	return p, ok
}
