package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/gateway/wire"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// frames is how many a broker has sent another, and how many of them at once.
func (w *world) frames(from, to ident.Node) (sent, now int) {
	p := w.pipe(from, to)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent, p.now
}

// An uncontended put, and the answer to it, wake no sender; many gather for it.
func TestUncontendedPutIsForwardedAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		w.topic("orders", "n1")
		for n := range 3 {
			a := w.publish("n2", "x")
			synctest.Wait()
			requireOK(t, a, 1)
			for _, way := range [][2]ident.Node{{"n2", "n1"}, {"n1", "n2"}} {
				sent, now := w.frames(way[0], way[1])
				require.Equal(t, n+1, sent)
				require.Equal(t, n+1, now)
			}
		}
		w.pipe("n1", "n2").set(false, true) // or each may be answered before the next comes, and be alone
		a := w.publish("n2", numbers(100)...)
		synctest.Wait()
		w.pipe("n1", "n2").set(false, false)
		time.Sleep(2 * windowPause)
		requireOK(t, a, 100)
		sent, now := w.frames("n2", "n1")
		require.Greater(t, sent, now)
		require.Equal(t, 4, now, "the first is alone, for all that is known")
		sent, now = w.frames("n1", "n2")
		require.Greater(t, sent, now)
		require.Equal(t, 3, now)
	})
}

// An uncontended put without a connection is tried again, and an uncontended answer waits for room.
func TestUncontendedPutWithoutAConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		top := w.topic("orders", "n1")
		there, back := w.pipe("n2", "n1"), w.pipe("n1", "n2")
		there.set(false, true)
		a := w.publish("n2", "one")
		synctest.Wait()
		requireOK(t, a, 0)
		back.set(false, true)
		there.set(false, false)
		w.tell()
		synctest.Wait()
		require.Equal(t, []string{"one"}, w.bodies(top.Partition(0)))
		requireOK(t, a, 0)
		back.set(false, false)
		time.Sleep(2 * windowPause)
		requireOK(t, a, 1)
		require.Equal(t, []string{"one"}, w.bodies(top.Partition(0)))
	})
}

// While answers wait for a peer, one more goes with them.
func TestUncontendedAnswerGoesAfterThoseThatWait(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world) {
		s := w.brokers["n1"].gw.out
		w.pipe("n1", "n2").set(false, true)
		s.reply("n2", wire.Reply{Attempt: 1, Outcome: outcome.Committed}, nil, false)
		synctest.Wait()
		w.pipe("n1", "n2").set(false, false)
		s.reply("n2", wire.Reply{Attempt: 1, Outcome: outcome.Committed}, nil, true)
		synctest.Wait()
		sent, now := w.frames("n1", "n2")
		require.Equal(t, 1, sent)
		require.Zero(t, now)
	})
}
