package gateway

import (
	"runtime"
	"testing"

	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/stretchr/testify/require"
)

// TestManyStreamsOfASession: the cost of opening or closing a stream does not depend on the number of streams.
func TestManyStreamsOfASession(t *testing.T) {
	l := newRelaySession(nil, "n2")
	const streams = 10_000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for id := range uint64(streams) {
		l.add(&stream{id: id, channel: &nsqd.Channel{}, subscriber: &nsqd.Subscriber{}})
	}
	for id := range uint64(streams) {
		l.remove(id)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(streams*2048))
}
