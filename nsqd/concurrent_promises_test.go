package nsqd

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
)

// TestPromiseMillionDueAtOnce: while a million deferred messages become ready, the core loop waits for the lock of
// the channel for at most a quarter of that time.
func TestPromiseMillionDueAtOnce(t *testing.T) {
	const n = 1 << 20
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	for i := range n {
		c.cursor.DeferUntil(cursor.NewEntry(ident.Sequence(i), int64(rand.N(1<<40)), 0))
	}
	begin, done := time.Now(), make(chan struct{})
	go func() { r.Expire(1 << 41); close(done) }()
	longest, raised := time.Duration(0), 0
	for running := true; running; raised++ {
		select {
		case <-done:
			running = false
		default:
			at := time.Now()
			c.advance(ident.Sequence(raised))
			longest = max(longest, time.Since(at))
		}
	}
	all := time.Since(begin)
	t.Logf("%d due at once: ready after %s; the loop waited %s at most", n, all, longest)
	require.Less(t, longest, all/4)
	require.Equal(t, n, c.cursor.Deferred.Ready())
}
