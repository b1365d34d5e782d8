package gateway

import (
	"runtime"
	"testing"

	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/stretchr/testify/require"
)

// TestManyStreamsOfALink: what it costs to open or close a stream does not depend on
// how many there are.
func TestManyStreamsOfALink(t *testing.T) {
	l := newLink(nil, "n2")
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
