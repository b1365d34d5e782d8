package queue

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/lockstepmq/lockstep/internal/ident"
)

var errNoPlace = errors.New("the batch is outside the segments")

// Repair writes batches of a peer over damaged ranges, after the caller has proved them by the
// chain of checksums. It also extends files that were cut short. The batches are durable on return.
// Like Write, it runs in one goroutine at a time.
func (s *Segments) Repair(batches []Batch) error {
	for i := range batches {
		if err := s.rewrite(&batches[i]); err != nil {
			return fmt.Errorf("queue: repair offset %d: %w", batches[i].At.Offset, err)
		}
	}
	return s.Sync()
}

// rewrite writes one batch at its place.
func (s *Segments) rewrite(b *Batch) error {
	list := s.segments()
	i := sort.Search(len(list), func(i int) bool { return list[i].base > b.At.Offset }) - 1
	if i < 0 || b.At.Offset > list[i].end() || b.End.Offset > limitOf(list, i) {
		return errNoPlace
	}
	g := list[i]
	if err := s.writeAt(g, b.Bytes, b.At.Offset); err != nil {
		return err
	}
	if b.End.Offset > g.end() {
		list = slices.Clone(list)
		list[i].size = int64(b.End.Offset - g.base)
		s.set(list)
	}
	return nil
}

// limitOf is the greatest possible end of a file: the beginning of the next one. The last file does not grow.
func limitOf(list []segment, i int) ident.Offset {
	if i+1 < len(list) {
		return list[i+1].base
	}
	return list[i].end()
}
