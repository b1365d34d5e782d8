package sim

import (
	"sort"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// index is a commit log in memory: replica.Index without files.
type index struct {
	start   ident.Position
	records []commitlog.Record
}

func newIndex(m *image) *index {
	return &index{start: m.start, records: m.records()}
}

// Append implements replica.Index.
func (x *index) Append(r ...commitlog.Record) { x.records = append(x.records, r...) }

// Truncate implements replica.Index.
func (x *index) Truncate(end ident.Offset) { x.records = x.records[:x.find(end)] }

// Restart implements replica.Index.
func (x *index) Restart(p ident.Position) { x.start, x.records = p, nil }

// AtOffset implements replica.Index.
func (x *index) AtOffset(o ident.Offset) (commitlog.Record, bool) {
	i := x.find(o + 1)
	if i == 0 || x.records[i-1].End().Offset <= o {
		return commitlog.Record{}, false
	}
	return x.records[i-1], true
}

// Start implements replica.Index.
func (x *index) Start() ident.Position { return x.start }

// trim forgets whole records below o.
func (x *index) trim(o ident.Offset) {
	if n := x.find(o); n > 0 {
		x.start = x.records[n-1].End()
		x.records = x.records[n:]
	}
}

// find is the first record that begins at or after o.
func (x *index) find(o ident.Offset) int {
	return sort.Search(len(x.records), func(i int) bool { return x.records[i].Offset >= o })
}
