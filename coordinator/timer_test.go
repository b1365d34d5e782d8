package coordinator

import (
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/rpc"
	"github.com/stretchr/testify/require"
)

// A peer counts as up until it was silent for a while; that while is part of the
// second for which a leader may serve unheard.
func TestSilenceOfPeersCounts(t *testing.T) {
	for silent, want := range map[time.Duration]time.Duration{
		0:                      silence - defaultSilent,
		300 * time.Millisecond: silence - 300*time.Millisecond,
		5 * time.Second:        2 * tickEvery, // asked for: a stop of a moment
	} {
		b := &Broker{o: Options{RPC: rpc.Times{Silent: silent}}}
		require.Equal(t, want, b.unheard())
	}
}
