package engine

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQueueKeepsOrderAndLosesNothing(t *testing.T) {
	m := newEventQueue()
	const writers, each = 4, 1000
	var done sync.WaitGroup
	for w := range writers {
		done.Go(func() {
			for i := range each {
				m.enqueue(event{token: uint64(w), delta: []byte{byte(i >> 8), byte(i)}})
			}
		})
	}
	next := make([]int, writers)
	var events []event
	for n := 0; n < writers*each; {
		<-m.wake
		events = m.take(events)
		for _, w := range events {
			require.Equal(t, next[w.token], int(w.delta[0])<<8|int(w.delta[1]))
			next[w.token]++
		}
		n += len(events)
	}
	done.Wait()
}

func TestClosedQueueGivesBackItsEvents(t *testing.T) {
	m := newEventQueue()
	require.True(t, m.enqueue(event{token: 1}))
	require.Len(t, m.close(), 1)
	require.False(t, m.enqueue(event{token: 2}))
}
