package queue

import (
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/lockstepmq/lockstep/internal/ident"
)

var errNoPlace = errors.New("it is not in the segments")

// Repair puts batches that a peer gave, and the chain of checksums proved, over
// what is damaged, and fills files that were cut short from where they end.
// Durable on return. It counts as a Write: one goroutine at a time.
func (s *Segments) Repair(batches []Batch) error {
	for i := range batches {
		if err := s.rewrite(&batches[i]); err != nil {
			return fmt.Errorf("queue: repair offset %d: %w", batches[i].At.Offset, err)
		}
	}
	return s.Sync()
}

// rewrite puts one batch where it lies, or lay.
func (s *Segments) rewrite(b *Batch) error {
	list := s.segments()
	i := sort.Search(len(list), func(i int) bool { return list[i].base > b.At.Offset }) - 1
	if i < 0 || b.At.Offset > list[i].end() || b.End.Offset > limitOf(list, i) {
		return errNoPlace
	}
	g := list[i]
	h, err := s.files.Open(s.Name(g.base))
	if err != nil {
		return err
	}
	defer h.Release()
	s.unsynced[g.base] = struct{}{}
	if _, err := h.WriteAt(b.Bytes, int64(b.At.Offset-g.base)); err != nil {
		return err
	}
	if b.End.Offset > g.end() {
		list = slices.Clone(list)
		list[i].size = int64(b.End.Offset - g.base)
		s.set(list)
	}
	return nil
}

// limitOf is where the file may end at most: where the next one begins. The last
// one does not grow.
func limitOf(list []segment, i int) ident.Offset {
	if i+1 < len(list) {
		return list[i+1].base
	}
	return list[i].end()
}
