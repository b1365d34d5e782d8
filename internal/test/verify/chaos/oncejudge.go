package chaos

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/verify/e2e/history"
)

// copies are the ids under which the messages of a topic are stored, by their bodies.
type copies map[string]map[string]bool

func (c copies) add(body, id string) {
	if c[body] == nil {
		c[body] = map[string]bool{}
	}
	c[body][id] = true
}

// logOf reads what the log of a topic has.
func (c *cluster) logOf(name string) copies {
	c.t.Helper()
	found := copies{}
	for partition := range oncePartitions {
		for from := "earliest"; ; {
			page, ok := c.page(name, partition, from)
			require.True(c.t, ok, "the log of %s/%d cannot be read", name, partition)
			for _, m := range page.Messages {
				found.add(m.Body, m.ID)
			}
			if page.Next >= page.End {
				break
			}
			from = fmt.Sprint(page.Next)
		}
	}
	return found
}

// page is a part of a log.
func (c *cluster) page(name string, partition int, from string) (page api.Peeked, ok bool) {
	_, ok = within(wholeLimit, func() bool {
		for _, b := range c.brokers {
			page = api.Peeked{}
			if c.get(b, fmt.Sprintf("/v1/topic/peek?topic=%s&partition=%d&from=%s&limit=1000", name, partition, from), &page) == nil {
				return true
			}
		}
		return false
	})
	return page, ok
}

// firstKept is the first message of some partition that is retained.
func (c *cluster) firstKept(name string) (first uint64) {
	for partition := range oncePartitions {
		page, _ := c.page(name, partition, "earliest")
		first = max(first, uint64(page.Start))
	}
	return first
}

// judge compares what producers of a topic were told with what its log has and its channel delivered.
func (o *once) judge(t *testing.T, of onceTopic, s *sink) {
	log := o.c.logOf(of.name)
	took, drained := within(onceDrain, func() bool { n, known := o.c.leftOf(of.name, onceChannel); return known && n == 0 })
	if !drained {
		t.Errorf("%s is not drained after %s", of.name, took)
	}
	all, delivered := copies{}, copies{}
	for _, d := range s.all() {
		all.add(d.Body, d.ID)
		delivered.add(d.Body, d.ID)
	}
	for body, ids := range log {
		for id := range ids {
			all.add(body, id)
		}
	}
	var r onceReport
	for _, p := range o.pens {
		if p.of == of {
			for _, l := range p.finished {
				r.judge(o, p, l, log, delivered, all)
			}
		}
	}
	t.Logf("%-9s %s, %d in the log, %d delivered, %d unexpected", of.name, r, len(log), len(delivered), len(all)-r.found)
	if len(all) != r.found {
		o.fault("%s: %d bodies are not those of producers", of.name, len(all)-r.found)
	}
}

// onceReport counts messages.
type onceReport struct{ messages, acknowledged, unknown, refused, found, missing, doubled, wrong int }

// String prints the report.
func (r onceReport) String() string {
	return fmt.Sprintf("%d messages: %d acknowledged, %d in doubt at last, %d refused; %d missing, %d doubled, %d stored though refused",
		r.messages, r.acknowledged, r.unknown, r.refused, r.missing, r.doubled, r.wrong)
}

// judge judges the messages of one letter.
func (r *onceReport) judge(o *once, p *pen, l *letter, log, delivered, all copies) {
	refused := !slices.ContainsFunc(l.answers, func(a history.Answer) bool { return a == history.OK || a == history.InDoubt })
	stored := 0
	for _, body := range l.bodies {
		r.messages++
		n := len(all[body])
		stored += min(n, 1)
		switch {
		case l.ok():
			r.acknowledged++
		case refused:
			r.refused++
		default:
			r.unknown++
		}
		if n > 0 {
			r.found++
		}
		if n > 1 {
			r.doubled++
			o.fault("%s: %.30s is stored as %v; first put %s, acknowledged %s, answers %v", p.of.name, body, all[body], l.first.Format("15:04:05.000"), l.acked.Format("15:04:05.000"), l.answers)
		}
		if n > 0 && refused {
			r.wrong++
			o.fault("%s: %.30s was refused, and is stored; put %s", p.of.name, body, l.first.Format("15:04:05.000"))
		}
		if lost := len(delivered[body]) == 0 || p.of.kept && len(log[body]) == 0; lost && l.ok() {
			r.missing++
			o.fault("%s: %.30s was acknowledged %s, and is %d times in the log and %d times delivered", p.of.name, body, l.acked.Format("15:04:05.000"), len(log[body]), len(delivered[body]))
		}
	}
	if stored > 0 && stored < len(l.bodies) {
		o.fault("%s: %d of %d messages of one put are stored: %.30s", p.of.name, stored, len(l.bodies), l.bodies[0])
	}
}
