package cursor

import "github.com/lockstepmq/lockstep/internal/ident"

// seqQueue is a first-in-first-out queue of sequences.
type seqQueue struct {
	items []ident.Sequence
	head  int
}

func (q *seqQueue) len() int              { return len(q.items) - q.head }
func (q *seqQueue) front() ident.Sequence { return q.items[q.head] }
func (q *seqQueue) last() ident.Sequence  { return q.items[len(q.items)-1] }

func (q *seqQueue) push(s ident.Sequence) {
	if q.head > 64 && q.head*2 > len(q.items) {
		q.items = q.items[:copy(q.items, q.items[q.head:])]
		q.head = 0
	}
	q.items = append(q.items, s)
}

func (q *seqQueue) pop() {
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
}
