package tcp_test

import (
	"context"
	"encoding/binary"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

func size(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }

// Pipelined puts are gathered only if they have the same topic.
func TestPutsOfOtherTopicsEndARun(t *testing.T) {
	b := newBroker(t)
	c := b.dial()
	c.send("PUB one\n" + sized("1") + "PUB ones\n" + sized("3") + "PUB one\n" + sized("4") + "PUB two\n" + sized("2"))
	for range 4 {
		c.response("OK")
	}
	for topic, bodies := range map[string][]string{"one": {"1", "4"}, "two": {"2"}, "ones": {"3"}} {
		c := b.dial()
		c.subscribe(topic, "ch", "10")
		for _, body := range bodies {
			require.Equal(t, body, c.message().body)
		}
		c.quiet()
	}
}

// The smallest refused value of each limit; TestFatalErrors has the others.
func TestFirstBeyondALimit(t *testing.T) {
	c := newBroker(t, small).dial()
	c.send("MPUB t\n" + size(1001))
	c.fatal("E_BAD_BODY MPUB body too big 1001 > 1000")
}

// The sizes of the messages steer the parse, not the size of the body. Their sum must not
// exceed the limit of a batch: followers refuse a larger one.
func TestMultiPutIsNoLargerThanABatch(t *testing.T) {
	const large = 40 << 20
	c := newBroker(t, func(s *setup) { s.options.MaxMsgSize, s.options.MaxBodySize = large, 50<<20 }).dial()
	c.send("MPUB t\n" + size(50<<20) + size(2) + sized(repeat("x", large)) + size(large))
	c.fatal("E_BAD_BODY MPUB body too big 83886165 > 52428800")
}

// An announced body allocates no memory before its bytes arrive.
func TestAnnouncedBodiesCostNothing(t *testing.T) {
	const announced = 1 << 30
	c := newBroker(t, func(s *setup) { s.options.MaxBodySize = announced }).dial()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.send("MPUB t\n" + size(announced) + size(1) + sized("x"))
	c.response("OK")
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(announced/16))
}

// slow delays the admission of a put.
type slow struct{ api.Publisher }

func (s slow) Admit(ctx context.Context, topic string, size int) error {
	time.Sleep(5250 * time.Millisecond)
	return s.Publisher.Admit(ctx, topic, size)
}

// The time that a put waits for admission does not count against the client, which cannot send during it.
func TestRoomThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newBroker(t, piped, func(s *setup) { s.backend.Publisher = slow{s.backend.Publisher} }).dial()
		c.identify(`{"heartbeat_interval":1000}`)
		for _, body := range []string{"ab", "a"} { // the second put is admitted before its body has arrived: the topic exists
			require.NoError(t, c.conn.SetDeadline(time.Now().Add(wait.Limit)))
			c.send("PUB t\n" + size(2) + body)
			for range 5 {
				require.Equal(t, "_heartbeat_", c.read().data)
			}
			c.send("ab"[len(body):])
			c.response("OK")
		}
	})
}
