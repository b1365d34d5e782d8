package chaos

import (
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge/record"
)

const (
	orderedChannel = "ordered"
	// orderedReady is the credit of a client, over all partitions.
	orderedReady = 300
)

// ordered records what an ordered channel delivers. A deposed leader may deliver alongside its successor: the fencing token of
// such a message is outdated. The message is counted, and not answered.
type ordered struct {
	mu         sync.Mutex
	partitions map[int]*orderedPartition
	deliveries []*judge.Delivery
	stale      int
	overlap    time.Duration // from a successor's first delivery to the last of its predecessors
}

// orderedPartition is what clients know of one.
type orderedPartition struct {
	epoch ident.Epoch
	began time.Time // the first delivery under it
}

func newOrdered() *ordered { return &ordered{partitions: map[int]*orderedPartition{}} }

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
	place, _ := judge.ParseID(d.id)
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.partitions[place.Partition]
	if p == nil {
		p = &orderedPartition{}
		o.partitions[place.Partition] = p
	}
	now := record.Now()
	x := &judge.Delivery{Channel: orderedChannel, Consumer: d.from, ID: d.id, Body: d.body, Attempts: d.attempts, Epoch: uint64(d.epoch), Asked: now, At: now}
	o.deliveries = append(o.deliveries, x)
	if d.epoch < p.epoch {
		o.stale++
		o.overlap = max(o.overlap, d.at.Sub(p.began))
		return true
	}
	if d.epoch > p.epoch {
		p.epoch, p.began = d.epoch, d.at
	}
	if finish {
		record.Finished(x)
	}
	return false
}

// channel is the ordered channel for the judge. Its clients read the token of each delivery.
func (o *ordered) channel() judge.Channel {
	return judge.Channel{Name: orderedChannel, Ordered: true, Whole: true, Fenced: true}
}

// all are the deliveries so far.
func (o *ordered) all() []*judge.Delivery {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.deliveries)
}

func (o *ordered) log(t *testing.T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t.Logf("ordered channel: %d deliveries of deposed leaders, the last %s after their successor's first", o.stale, o.overlap)
}
