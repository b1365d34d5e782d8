package query

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
)

// TestPartitionsAreAddedUp: some channels and clients are on some partitions only.
func TestPartitionsAreAddedUp(t *testing.T) {
	part := func(relayed bool, from, to int) (p api.TopicStats) {
		for c := range 2 {
			ch := api.ChannelStats{ChannelName: fmt.Sprint("c", c+from/10), Depth: 1, ClientCount: to - from}
			for i := from; i < to; i++ {
				ch.Clients = append(ch.Clients, api.ClientStats{RemoteAddress: fmt.Sprintf("%03d", i), Relayed: relayed, FinishCount: 1})
			}
			p.Channels = append(p.Channels, ch)
		}
		return p
	}
	sum := part(false, 10, 20) // c1, c2
	addTopic(&sum, part(true, 5, 15))
	addTopic(&sum, part(true, 5, 15)) // c0, c1
	var channels, clients []string
	for _, c := range sum.Channels {
		channels = append(channels, fmt.Sprint(c.ChannelName, " ", c.Depth, " ", c.ClientCount))
	}
	require.Equal(t, []string{"c0 2 10", "c1 3 15", "c2 1 10"}, channels)
	for _, c := range sum.Channels[1].Clients {
		clients = append(clients, fmt.Sprint(c.RemoteAddress, " ", c.FinishCount))
	}
	require.Equal(t, []string{"005 2", "006 2", "007 2", "008 2", "009 2", "010 3", "011 3", "012 3", "013 3", "014 3",
		"015 1", "016 1", "017 1", "018 1", "019 1"}, clients)
}

func BenchmarkAddClients(b *testing.B) {
	for _, n := range []int{1000, 2000, 4000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var part api.ChannelStats
			for i := range n {
				part.Clients = append(part.Clients, api.ClientStats{RemoteAddress: fmt.Sprintf("10.0.0.1:%05d", i)})
			}
			for b.Loop() {
				var sum api.ChannelStats
				for range 8 {
					addChannel(&sum, part)
				}
			}
		})
	}
}
