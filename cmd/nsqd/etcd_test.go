package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestARegistrationOfADeadBrokerMayStay: a wiped broker waits for the end of its earlier registration. The
// time in which the metadata gave no answer, or its leases were restarted, does not make the name taken.
func TestARegistrationOfADeadBrokerMayStay(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	after := func(d time.Duration) time.Time { return at.Add(d) }
	w := nameWait{most: 4 * time.Second}
	require.False(t, w.over(after(0), after(0), 7))
	require.False(t, w.over(after(3*time.Second), after(3*time.Second), 7))
	require.False(t, w.over(after(3*time.Second), after(11*time.Second), 7), "the metadata stood still")
	require.False(t, w.over(after(14*time.Second), after(14*time.Second), 7))
	require.False(t, w.over(after(15100*time.Millisecond), after(15100*time.Millisecond), 8), "a new leader")
	require.False(t, w.over(after(19*time.Second), after(19*time.Second), 8))
	require.True(t, w.over(after(20*time.Second), after(20*time.Second), 8), "it is renewed: the broker lives")
}
