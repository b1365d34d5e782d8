package protocol

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// finishing is a subscription whose client finishes a message between two looks.
type finishing struct {
	edge.Subscription
	inFlight int
}

func (f *finishing) InFlight() int {
	f.inFlight--
	return f.inFlight + 1
}

// TestCreditThatComesBetweenTwoLooks: the reader saw nobody starve, so it woke nobody.
func TestCreditThatComesBetweenTwoLooks(t *testing.T) {
	c := &conn{}
	c.ready.Store(1)
	w := &writer{c: c, sub: &finishing{inFlight: 1}}
	require.Equal(t, 1, w.credit())
	w.sub = &finishing{inFlight: 10}
	require.Zero(t, w.credit())
	require.True(t, c.starved.Load(), "the next FIN wakes the writer")
	w.sub = &finishing{}
	require.Positive(t, w.credit())
	require.False(t, c.starved.Load())
}
