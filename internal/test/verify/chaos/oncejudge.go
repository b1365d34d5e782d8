package chaos

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge/record"
)

// onceLog is the log of a topic in the history of its clients.
const onceLog = "(log)"

// logOf reads what the log of a topic has.
func (c *cluster) logOf(name string) (found []*judge.Delivery) {
	c.t.Helper()
	for partition := range oncePartitions {
		for from := "earliest"; ; {
			page, ok := c.page(name, partition, from)
			require.True(c.t, ok, "the log of %s/%d cannot be read", name, partition)
			for _, m := range page.Messages {
				found = append(found, &judge.Delivery{Channel: onceLog, ID: m.ID, Body: m.Body})
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

// judge judges what producers of a topic were told, what its channel delivered, and what its log has. Retention removes the log of a
// topic that is not kept: there it only shows what must not be stored.
func (o *once) judge(t *testing.T, of onceTopic, s *sink) {
	took, drained := within(onceDrain, func() bool { n, known := o.c.leftOf(of.name, onceChannel); return known && n == 0 })
	if !drained {
		t.Errorf("%s is not drained after %s", of.name, took)
	}
	h := record.History(of.name, nil, append(s.all(), o.c.logOf(of.name)...), onceChannel)
	if of.kept {
		h.Channels = append(h.Channels, judge.Channel{Name: onceLog, Log: true, Whole: true})
	}
	for _, p := range o.pens {
		for _, l := range p.finished {
			if p.of == of && len(l.Attempts) > 0 {
				h.Puts = append(h.Puts, &l.Put)
			}
		}
	}
	report := judge.Judge(h)
	t.Logf("%-9s %s", of.name, report)
	for _, v := range report.Violations {
		o.fault("%s", v)
	}
}
