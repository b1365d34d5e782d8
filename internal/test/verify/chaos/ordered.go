package chaos

import (
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/verify/e2e/history"
)

const (
	orderedChannel = "ordered"
	// orderedReady is the credit of a client, over all partitions.
	orderedReady = 300
	// recentlyTook is how many deliveries of a partition a fault shows.
	recentlyTook = 6
)

// ordered watches an ordered channel: in each partition, what it delivers never
// steps back behind a finish and leaves nothing out. A deposed leader may deliver
// alongside its successor: the fencing token of such a message is outdated. The message
// is counted, and not answered.
type ordered struct {
	mu         sync.Mutex
	partitions map[uint16]*orderedPartition
	faults     []string
	stale      int
	overlap    time.Duration // from a successor's first delivery to the last of its predecessors
}

// orderedPartition is what clients know of one.
type orderedPartition struct {
	done   int64 // highest sequence finished; −1: none
	epoch  ident.Epoch
	began  time.Time // the first delivery under it
	recent []delivery
}

func newOrdered() *ordered { return &ordered{partitions: map[uint16]*orderedPartition{}} }

// watchOrder attaches it, where there are partitions enough to keep up: the next
// message of one comes only when the last one is finished everywhere.
func (p *Plan) watchOrder(t *testing.T, c *cluster) *ordered {
	o := newOrdered()
	if p.partitions == 1 {
		return o
	}
	c.post("/channel/create", url.Values{"topic": {topic}, "channel": {orderedChannel}, "from": {"earliest"}, "ordered": {"true"}})
	for _, b := range c.brokers {
		(&fenceClient{t: t, took: o.took, address: b.tcp(), ready: orderedReady}).start()
	}
	return o
}

// took notes a delivery and finishes it.
func (o *ordered) took(d delivery) *nsq.Command {
	if o.delivered(d, true) {
		return nsq.Nop()
	}
	return nsq.Finish(nsq.MessageID([]byte(d.id)))
}

// delivered notes a delivery, and whether it is finished now or comes again. It
// reports whether a deposed leader made it.
func (o *ordered) delivered(d delivery, finish bool) (stale bool) {
	place, err := history.ParseID(d.id)
	seq := int64(place.Sequence)
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.partitions[place.Partition]
	if p == nil {
		p = &orderedPartition{done: -1}
		o.partitions[place.Partition] = p
	}
	p.recent = append(p.recent[max(0, len(p.recent)+1-recentlyTook):], d)
	if d.epoch < p.epoch {
		o.stale++
		o.overlap = max(o.overlap, d.at.Sub(p.began))
		return true
	}
	if d.epoch > p.epoch {
		p.epoch, p.began = d.epoch, d.at
	}
	if err != nil || seq < p.done || seq > p.done+1 {
		o.faults = append(o.faults, fmt.Sprintf("partition %d: message %d after the finish of %d: %v; %v",
			place.Partition, seq, p.done, err, p.recent))
	}
	if finish {
		p.done = max(p.done, seq)
	}
	return false
}

func (o *ordered) requireKept(t *testing.T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t.Logf("ordered channel: %d deliveries of deposed leaders, the last %s after their successor's first", o.stale, o.overlap)
	if len(o.faults) > 0 {
		t.Errorf("ordered channel: %d faults, the first: %s", len(o.faults), o.faults[0])
	}
}
