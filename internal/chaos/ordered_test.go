package chaos

import (
	"fmt"
	"net/url"
	"sync"
	"testing"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/e2e/history"
)

const orderedChannel = "ordered"

// ordered watches an ordered channel: in each partition, what it delivers never
// steps back behind a finish and leaves nothing out.
type ordered struct {
	mu     sync.Mutex
	done   map[uint16]int64 // partition → highest sequence finished
	faults []string
}

// watchOrder attaches it, where there are partitions enough to keep up: the next
// message of one comes only when the last one is finished everywhere.
func (p *plan) watchOrder(t *testing.T, c *cluster) *ordered {
	o := &ordered{done: map[uint16]int64{}}
	if p.partitions == 1 {
		return o
	}
	c.post("/channel/create", url.Values{"topic": {topic}, "channel": {orderedChannel}, "from": {"earliest"}, "ordered": {"true"}})
	consumer, err := nsq.NewConsumer(topic, orderedChannel, config())
	require.NoError(t, err)
	consumer.SetLogger(silent(), nsq.LogLevelError)
	consumer.AddHandler(o)
	for _, b := range c.brokers {
		require.NoError(t, consumer.ConnectToNSQD(b.tcp()))
	}
	t.Cleanup(func() {
		consumer.Stop()
		<-consumer.StopChan
	})
	return o
}

// HandleMessage implements nsq.Handler.
func (o *ordered) HandleMessage(m *nsq.Message) error {
	o.delivered(string(m.ID[:]), m.NSQDAddress, true)
	return nil
}

// delivered notes a delivery, and whether it is finished now or comes again.
func (o *ordered) delivered(id, from string, finish bool) {
	place, err := history.ParseID(id)
	o.mu.Lock()
	defer o.mu.Unlock()
	seq, done := int64(place.Sequence), int64(-1)
	if d, ok := o.done[place.Partition]; ok {
		done = d
	}
	if err != nil || seq < done || seq > done+1 {
		o.faults = append(o.faults, fmt.Sprintf("partition %d: message %d from %s after the finish of %d: %v",
			place.Partition, seq, from, done, err))
	}
	if finish {
		o.done[place.Partition] = max(done, seq)
	}
}

func (o *ordered) requireKept(t *testing.T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.faults) > 0 {
		t.Errorf("ordered channel: %d faults, the first: %s", len(o.faults), o.faults[0])
	}
}
