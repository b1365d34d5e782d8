package nsqd

import (
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// RelocationLog is the log that the messages are read from (nsqd.Log).
type RelocationLog interface {
	Start() ident.Position
	Read(from ident.Sequence, max int, dst []queue.Message) ([]queue.Message, error)
	ReadRelocated(at ident.Offset, seq ident.Sequence) (queue.Message, bool, error)
}

// Read appends committed messages from a sequence on to dst, at most `most`: from the log, or from
// a relocation batch if the log begins above the sequence. It may read a disk.
func (c *Relocations) Read(log RelocationLog, from ident.Sequence, most int, dst []queue.Message) ([]queue.Message, error) {
	for had := len(dst); ; dst = dst[:had] {
		at, relocated := c.Find(from)
		start := log.Start()
		read, err := c.readFrom(log, from, at, most, dst)
		if len(read) > had && read[had].Seq == from {
			return read, err
		}
		// Retention may have relocated the message, or removed its former place, since the look.
		if now, ok := c.Find(from); ok == relocated && now == at && log.Start() == start {
			return read, err
		}
	}
}

// readFrom is Read with the relocation batch of the first message, NoOffset: it has none.
func (c *Relocations) readFrom(log RelocationLog, from ident.Sequence, at ident.Offset, most int, dst []queue.Message) ([]queue.Message, error) {
	if at != NoOffset && from < log.Start().Sequence {
		m, ok, err := log.ReadRelocated(at, from)
		if ok {
			dst = append(dst, m)
		}
		return dst, err
	}
	return log.Read(from, most, dst)
}

// ReadEach reads the messages of a list. The first one gives its error, or is missing, as with
// Read. The others follow in the order of the list, as far as they can be read, until they take
// about `most` bytes. The reads go in the order of the log, so that a batch with many of the
// messages is read once.
func (c *Relocations) ReadEach(log RelocationLog, seqs []ident.Sequence, most int, dst []queue.Message) ([]queue.Message, error) {
	dst, err := c.Read(log, seqs[0], 1, dst)
	if err != nil || len(dst) == 0 || dst[0].Seq != seqs[0] {
		return dst, err
	}
	bytes := dst[0].Size()
	found := map[ident.Sequence]queue.Message{}
	sorted := slices.Sorted(slices.Values(seqs[1:]))
	var read []queue.Message
	for len(sorted) > 0 && bytes < most {
		n := 1
		for n < len(sorted) && sorted[n] == sorted[0]+ident.Sequence(n) {
			n++
		}
		read, _ = c.Read(log, sorted[0], n, read[:0]) // its error is reported once this message is the first of a list
		for i := range read {
			found[read[i].Seq] = read[i]
			bytes += read[i].Size()
		}
		sorted = sorted[min(max(len(read), 1), n):]
	}
	for _, seq := range seqs[1:] {
		m, ok := found[seq]
		if !ok {
			break
		}
		dst = append(dst, m)
	}
	return dst, nil
}
