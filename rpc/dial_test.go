package rpc

import (
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
)

func TestBackoff(t *testing.T) {
	b := backoff{min: 20 * time.Millisecond, max: 500 * time.Millisecond}
	for range 2 {
		require.Zero(t, b.next(), "the first redial is at once")
		for _, pause := range []time.Duration{20, 40, 80, 160, 320, 500, 500} {
			pause *= time.Millisecond
			got := b.next()
			require.GreaterOrEqual(t, got, pause/2)
			require.LessOrEqual(t, got, pause)
		}
		b.pause, b.again = 0, false
	}
}

// A peer that dies soon after it came back is found dead as soon as one that had
// been there for long: the pauses of its absence are forgotten, the least is not.
func TestBackoffAfterShortConnection(t *testing.T) {
	b := backoff{min: 20 * time.Millisecond, max: 500 * time.Millisecond}
	for range 10 {
		b.next()
	}
	b.pause = 0
	got := b.next()
	require.GreaterOrEqual(t, got, 10*time.Millisecond)
	require.LessOrEqual(t, got, 20*time.Millisecond)
	require.Greater(t, b.next(), 19*time.Millisecond, "and doubled again")
}

func TestComplaintIsNotRepeated(t *testing.T) {
	var c complaint
	require.True(t, c.fresh("one"))
	require.False(t, c.fresh("one"))
	require.True(t, c.fresh("two"))
	c.at = c.at.Add(-time.Hour)
	require.True(t, c.fresh("two"))
}

// Each attempt to reach a hung peer comes from another local port, which the
// error names: it is the same complaint nonetheless.
func TestAHungPeerIsComplainedOfOnce(t *testing.T) {
	log, said := test.NewNullLogger()
	tr := &Transport{log: logrus.FieldLogger(log)}
	p := newPeer(tr, "n2", "10.0.0.2:4153", func() {})
	for port := range 20 {
		err := &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 40000 + port},
			Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 4153}, Err: os.ErrDeadlineExceeded}
		p.complain(t.Context(), "cannot connect to peer", fmt.Errorf("hello: %w", err))
	}
	require.Len(t, said.AllEntries(), 1)
}
