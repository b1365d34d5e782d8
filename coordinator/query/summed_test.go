package query

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// TestClientsAreReportedOnce: a client of a broker that reports the topic itself is left to it.
func TestClientsAreReportedOnce(t *testing.T) {
	ch := api.ChannelStats{ClientCount: 5, Clients: []api.ClientStats{ // one more has no description
		{ClientID: "own"},
		{ClientID: "of n2, a leader", Relayed: true, Edge: "n2"},
		{ClientID: "of n3, no leader", Relayed: true, Edge: "n3"},
		{ClientID: "of one partition", Relayed: true},
	}}
	once(&ch, []ident.Node{"n1", "n2"})
	require.Equal(t, 4, ch.ClientCount)
	var left []string
	for _, c := range ch.Clients {
		left = append(left, c.ClientID)
	}
	require.Equal(t, []string{"own", "of n3, no leader", "of one partition"}, left)
}
