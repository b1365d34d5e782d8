package judge

import (
	"fmt"
	"strings"
)

// Report is the judgement of one history, with its figures.
type Report struct {
	Puts, Acknowledged int // messages; acknowledged in the end
	InDoubt            int // attempts without a definite answer
	Definite           int // attempts that were refused or rolled back
	Deliveries         int
	Stored             int // message ids that were delivered
	Copies             int // messages that are stored more than once, which an attempt in doubt allows
	Redelivered        int // deliveries of a message by a channel that had delivered it before
	AfterFinish        int // of these, those after a finish that has no answer
	AttemptsMax        int
	Violations         []Violation
}

// Judge returns the violations of a history with its figures.
func Judge(h *History) Report {
	s := check(h)
	r := Report{Violations: s.out, Stored: len(s.body), Deliveries: len(h.Deliveries), AfterFinish: s.afterFinish()}
	for _, p := range h.Puts {
		r.Puts += len(p.Bodies)
		r.InDoubt += p.count(InDoubt)
		r.Definite += p.count(Refused) + p.count(RolledBack)
		if p.Acknowledged() {
			r.Acknowledged += len(p.Bodies)
		}
		for _, b := range p.Bodies {
			if n := len(s.places[message{p, b}]); n > 1 && n <= p.count(OK)+p.count(InDoubt) {
				r.Copies++
			}
		}
	}
	type key struct{ channel, id string }
	seen := map[key]bool{}
	for _, d := range h.Deliveries {
		r.AttemptsMax = max(r.AttemptsMax, d.Attempts)
		if k := (key{d.Channel, d.ID}); seen[k] {
			r.Redelivered++
		} else {
			seen[k] = true
		}
	}
	return r
}

// String prints the figures on a line, and the first violations on lines of their own.
func (r Report) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%d messages published, %d acknowledged, %d attempts in doubt, %d definite failures; %d deliveries of %d messages, "+
		"%d stored more than once after doubt, %d redelivered (%d after a finish), attempts up to %d; %d violations",
		r.Puts, r.Acknowledged, r.InDoubt, r.Definite, r.Deliveries, r.Stored, r.Copies, r.Redelivered, r.AfterFinish, r.AttemptsMax, len(r.Violations))
	const shown = 10
	for i, v := range r.Violations {
		if i == shown {
			fmt.Fprintf(&s, "\n  … and %d more", len(r.Violations)-shown)
			break
		}
		fmt.Fprintf(&s, "\n  %s", v)
	}
	return s.String()
}
