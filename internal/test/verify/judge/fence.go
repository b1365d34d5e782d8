package judge

import (
	"slices"
	"time"
)

// dense requires that a channel has delivered all sequences of each partition, from 0 to the highest.
func (s *state) dense(c Channel, deliveries []*Delivery) {
	seen := map[int][]uint64{}
	for _, d := range deliveries {
		if at, ok := ParseID(d.ID); ok {
			seen[at.Partition] = append(seen[at.Partition], at.Sequence)
		}
	}
	for partition, sequences := range seen {
		slices.Sort(sequences)
		next := uint64(0)
		for _, n := range slices.Compact(sequences) {
			if n != next {
				s.fault("hole", "%s, partition %d: sequences %d to %d were not delivered", c.Name, partition, next, n-1)
			}
			next = n + 1
		}
	}
}

// fencedPartition is what consumers know of a partition of an ordered channel.
type fencedPartition struct {
	epoch    uint64 // the highest that has delivered
	next     uint64 // behind the highest sequence that consumers have tried to finish
	finishes []*Delivery
}

// fenced requires that an ordered channel delivers the message behind the last one that consumers have tried to finish, or that one
// again. Nothing is required of a leader after its successor has delivered: consumers know its fencing token as outdated.
func (s *state) fenced(c Channel, deliveries []*Delivery) {
	partitions := map[int]*fencedPartition{}
	for _, d := range deliveries {
		at, ok := ParseID(d.ID)
		if !ok {
			continue
		}
		p := partitions[at.Partition]
		if p == nil {
			p = &fencedPartition{}
			partitions[at.Partition] = p
		}
		if d.Epoch < p.epoch {
			continue
		}
		p.epoch = d.Epoch
		p.finishes = slices.DeleteFunc(p.finishes, func(f *Delivery) bool {
			if finish, _ := f.finish(); finish > d.At {
				return false
			}
			done, _ := ParseID(f.ID)
			p.next = max(p.next, done.Sequence+1)
			return true
		})
		if at.Sequence > p.next || at.Sequence+1 < p.next {
			s.fault("passed", "%s, partition %d: sequence %d in epoch %d at %s, behind a finish of all before %d", c.Name, at.Partition, at.Sequence, d.Epoch, d.At, p.next)
		}
		if _, tried := d.finish(); tried {
			p.finishes = append(p.finishes, d)
		}
	}
}

// finish is when its consumer first tried to finish a delivery.
func (d *Delivery) finish() (at time.Duration, tried bool) {
	for _, x := range d.Settled {
		if x.Verb == "finish" && (!tried || x.At < at) {
			at, tried = x.At, true
		}
	}
	return at, tried
}

// afterFinish counts the deliveries of messages that their channel's consumers had tried to finish, without an answer, before.
func (s *state) afterFinish() (n int) {
	type key struct{ channel, id string }
	finished := map[key]time.Duration{}
	for _, d := range s.h.Deliveries {
		k := key{d.Channel, d.ID}
		before, known := finished[k]
		if known && before <= d.At {
			n++
		}
		for _, x := range d.Settled {
			if x.Verb == "finish" && !x.Accepted && x.Unknown && (!known || x.At < before) {
				finished[k], before, known = x.At, x.At, true
			}
		}
	}
	return n
}
