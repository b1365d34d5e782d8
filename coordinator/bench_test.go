package coordinator_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// BenchmarkReplicatedPut is puts of 200 bytes on three brokers that sync nothing, so many in
// flight at once, through the leader and through another broker.
func BenchmarkReplicatedPut(b *testing.B) {
	for _, at := range []string{"leader", "other"} {
		for _, inFlight := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", at, inFlight), func(b *testing.B) { benchmarkPut(b, at == "leader", inFlight) })
		}
	}
}

func benchmarkPut(b *testing.B, atLeader bool, inFlight int) {
	s := newSyncCounter()
	c := newClusterOf(b, cluster{size: 3, noSync: true, hook: s.hook})
	require.NoError(b, c.put("n1", "orders", "m0"))
	c.whole("orders")
	c.cached(s, "orders")
	on := c.leader("orders")
	if !atLeader {
		on = map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[on]
	}
	p, body := c.nodes[on].Gateway, []byte(strings.Repeat("x", 200))
	slots := slots(make(chan struct{}, inFlight))
	b.ResetTimer()
	var done sync.WaitGroup
	for b.Loop() {
		slots <- struct{}{}
		d := queue.NewDraft(len(body))
		_ = d.AddMessage(queue.Message{Body: body})
		done.Add(1)
		p.Publish("orders", api.AnyPartition, nil, d.Draft(ident.RequestID{}), answered(func(r api.PutResult) {
			if r.Err != nil {
				b.Error(r.Err)
			}
			<-slots
			done.Done()
		}))
	}
	done.Wait()
}

type slots chan struct{}

// answered is an api.PutAnswer that calls a function.
type answered func(api.PutResult)

// Answer implements it.
func (f answered) Answer(r api.PutResult) { f(r) }
