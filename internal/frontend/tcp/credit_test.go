package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
)

// finishing is a subscription whose client finishes a message between two checks of the writer.
type finishing struct {
	api.Subscription
	c        *conn
	starved  []bool // at each check
	inFlight int
}

func (f *finishing) InFlight() int {
	f.starved = append(f.starved, f.c.starved.Load())
	f.inFlight--
	return f.inFlight + 1
}

// TestCreditThatComesBetweenTwoChecks: the reader saw no starving writer, so it sent no wake-up.
func TestCreditThatComesBetweenTwoChecks(t *testing.T) {
	c := &conn{}
	c.ready.Store(1)
	s := &finishing{c: c, inFlight: 1}
	w := &writer{c: c, sub: s}
	require.Equal(t, 1, w.credit())
	require.Equal(t, []bool{false, true}, s.starved, "the flag is raised before the second look")
	w.sub = &finishing{c: c, inFlight: 10}
	require.Zero(t, w.credit())
	require.True(t, c.starved.Load(), "the next FIN wakes the writer")
	w.sub = &finishing{c: c}
	require.Positive(t, w.credit())
	require.False(t, c.starved.Load())
}
