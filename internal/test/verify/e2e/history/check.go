package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Kind is a way in which a history is wrong.
type Kind string

// Kinds of faults; the numbers are those of the package comment.
const (
	Lost        Kind = "lost"        // 1
	Unexpected  Kind = "unexpected"  // 2
	RefusedSeen Kind = "refused"     // 2: refused, and delivered
	UndoneSeen  Kind = "rolled back" // 2: rolled back, and delivered
	Duplicate   Kind = "duplicate"   // 3
	Rewritten   Kind = "rewritten"   // 4
	Hole        Kind = "hole"        // 5
	Reordered   Kind = "reordered"   // 6
	Redelivered Kind = "redelivered" // 7
	Malformed   Kind = "malformed"   // an id that is none, a put without an answer, two puts of one body
)

// Fault is one thing wrong.
type Fault struct {
	Kind   Kind
	Detail string
}

// String gives "kind: detail".
func (f Fault) String() string { return string(f.Kind) + ": " + f.Detail }

// Limits are what a run may show without being wrong.
type Limits struct {
	Redelivered int // deliveries of messages that were finished before; < 0: any number
}

// Report is the judgement of one history.
type Report struct {
	Puts, Acknowledged int // bodies put; acknowledged in the end
	InDoubt            int // attempts without a definite answer
	Definite           int // attempts refused or rolled back
	Deliveries         int
	Stored             int // distinct message ids delivered
	Copies             int // bodies stored more than once, with an attempt in doubt as the reason
	Redelivered        int // deliveries of a message that had been delivered before
	AfterFinish        int // of these, those of a message that had been finished
	AttemptsMax        uint16
	Faults             []Fault
}

// String is the report on a line, and the first faults on lines of their own.
func (r Report) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d puts, %d acknowledged, %d in doubt, %d definite failures; %d deliveries of %d messages, "+
		"%d bodies twice after doubt, %d redelivered (%d after finish), attempts up to %d; %d faults",
		r.Puts, r.Acknowledged, r.InDoubt, r.Definite, r.Deliveries, r.Stored,
		r.Copies, r.Redelivered, r.AfterFinish, r.AttemptsMax, len(r.Faults))
	const shown = 10
	for i, f := range r.Faults {
		if i == shown {
			fmt.Fprintf(&s, "\n  … and %d more", len(r.Faults)-shown)
			break
		}
		fmt.Fprintf(&s, "\n  %s", f)
	}
	return s.String()
}

// judge collects what the checks need to know of a history.
type judge struct {
	Report
	puts   map[string]*Put
	stored map[string][]Place // body → where it was delivered from, each place once
	bodies map[string]string  // id → body of its first delivery
}

// Check judges a history.
func Check(h History, limits Limits) Report {
	j := &judge{puts: map[string]*Put{}, stored: map[string][]Place{}, bodies: map[string]string{}}
	j.readPuts(h.Puts)
	j.readDeliveries(h.Deliveries)
	j.checkLost(h.Puts)
	j.checkBodies()
	j.checkHoles()
	j.checkOrder(h.Puts)
	if limits.Redelivered >= 0 && j.AfterFinish > limits.Redelivered {
		j.fault(Redelivered, "%d deliveries after a finish, %d are allowed", j.AfterFinish, limits.Redelivered)
	}
	return j.Report
}

func (j *judge) fault(k Kind, format string, args ...any) {
	j.Faults = append(j.Faults, Fault{Kind: k, Detail: fmt.Sprintf(format, args...)})
}

func (j *judge) readPuts(puts []Put) {
	for i := range puts {
		p := &puts[i]
		if j.puts[p.Body] != nil {
			j.fault(Malformed, "two puts of %s", brief(p.Body))
		}
		if len(p.Answers) == 0 {
			j.fault(Malformed, "no answer to %s", brief(p.Body))
		}
		j.puts[p.Body] = p
		j.InDoubt += p.count(InDoubt)
		j.Definite += p.count(Refused) + p.count(RolledBack)
		if p.acknowledged() {
			j.Acknowledged++
		}
	}
	j.Puts = len(puts)
}

func (j *judge) readDeliveries(ds []Delivery) {
	finishedAt := map[string]int{} // id → the earliest finish
	for i, d := range ds {
		j.Deliveries++
		j.AttemptsMax = max(j.AttemptsMax, d.Attempts)
		at, finished := finishedAt[d.ID]
		if finished && at <= i {
			j.AfterFinish++
		}
		if d.FinishedAt > 0 && (!finished || d.FinishedAt < at) {
			finishedAt[d.ID] = d.FinishedAt
		}
		body, seen := j.bodies[d.ID]
		if seen {
			j.Redelivered++
			if body != d.Body {
				j.fault(Rewritten, "%s was %s and became %s", d.ID, brief(body), brief(d.Body))
			}
			continue
		}
		j.bodies[d.ID] = d.Body
		place, err := ParseID(d.ID)
		if err != nil {
			j.fault(Malformed, "%v", err)
			continue
		}
		j.stored[d.Body] = append(j.stored[d.Body], place)
	}
	j.Stored = len(j.bodies)
}

func (j *judge) checkLost(puts []Put) {
	for i := range puts {
		if puts[i].acknowledged() && len(j.stored[puts[i].Body]) == 0 {
			j.fault(Lost, "producer %d: %s", puts[i].Producer, brief(puts[i].Body))
		}
	}
}

// checkBodies compares how often each body was stored with the answers to its
// producer.
func (j *judge) checkBodies() {
	for body, places := range j.stored {
		p := j.puts[body]
		if p == nil {
			j.fault(Unexpected, "%s at %v", brief(body), places)
			continue
		}
		allowed := p.count(OK) + p.count(InDoubt)
		switch {
		case len(places) <= allowed:
			if len(places) > 1 {
				j.Copies++
			}
		case allowed > 0:
			j.fault(Duplicate, "%s at %v, answers %v", brief(body), places, p.Answers)
		case p.count(RolledBack) > 0:
			j.fault(UndoneSeen, "%s at %v, answers %v", brief(body), places, p.Answers)
		default:
			j.fault(RefusedSeen, "%s at %v, answers %v", brief(body), places, p.Answers)
		}
	}
}

// checkHoles requires the sequences of each partition dense from 0.
func (j *judge) checkHoles() {
	sequences := map[uint16][]uint64{}
	for _, places := range j.stored {
		for _, p := range places {
			sequences[p.Partition] = append(sequences[p.Partition], p.Sequence)
		}
	}
	for partition, ns := range sequences {
		slices.Sort(ns)
		next := uint64(0)
		for _, n := range slices.Compact(ns) {
			if n != next {
				j.fault(Hole, "partition %d: sequences %d to %d were not delivered", partition, next, n-1)
			}
			next = n + 1
		}
	}
}

// checkOrder: a body put after another one was acknowledged lies behind it. With
// attempts in doubt a body may lie at several places: then some place of the
// earlier one must be before some place of the later one. If they are in several
// partitions, nothing is known of any: which one was acknowledged is not said, and
// what was in doubt may have been stored at any time.
func (j *judge) checkOrder(puts []Put) {
	type lane struct {
		producer  int
		partition uint16
	}
	type last struct {
		sequence uint64
		body     string
	}
	behind := map[lane]last{}
	for i := range puts {
		p := &puts[i]
		if !p.acknowledged() {
			continue
		}
		lists := byPartition(j.stored[p.Body])
		if len(lists) > 1 {
			continue
		}
		for partition, places := range lists {
			at := lane{p.Producer, partition}
			first, final := places[0].Sequence, places[len(places)-1].Sequence
			if before, ok := behind[at]; ok && final < before.sequence {
				j.fault(Reordered, "producer %d, partition %d: %s at %d, after %s at %d",
					p.Producer, partition, brief(p.Body), final, brief(before.body), before.sequence)
			}
			if before, ok := behind[at]; !ok || first > before.sequence {
				behind[at] = last{first, p.Body}
			}
		}
	}
}

// byPartition sorts places by partition and sequence.
func byPartition(places []Place) map[uint16][]Place {
	m := map[uint16][]Place{}
	for _, p := range places {
		m[p.Partition] = append(m[p.Partition], p)
	}
	for _, list := range m {
		slices.SortFunc(list, func(a, b Place) int { return cmp.Compare(a.Sequence, b.Sequence) })
	}
	return m
}

// brief is enough of a body to find it.
func brief(body string) string {
	const enough = 60
	if len(body) > enough {
		body = body[:enough] + "…"
	}
	return fmt.Sprintf("%q", body)
}
