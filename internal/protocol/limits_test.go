package protocol_test

import (
	"context"
	"encoding/binary"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/edge"
)

func size(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }

// Puts that arrive together go together only if they are of one topic.
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

// The first that is too much, where TestFatalErrors has the rest.
func TestFirstBeyondALimit(t *testing.T) {
	c := newBroker(t, small).dial()
	c.send("MPUB t\n" + size(1001))
	c.fatal("E_BAD_BODY MPUB body too big 1001 > 1000")
}

// The sizes of the messages steer the parse, not that of the body. They must not add up
// to more than a batch may be: its followers would refuse it.
func TestMultiPutIsNoLargerThanABatch(t *testing.T) {
	const large = 40 << 20
	c := newBroker(t, func(s *setup) { s.options.MaxMsgSize, s.options.MaxBodySize = large, 50<<20 }).dial()
	c.send("MPUB t\n" + size(5) + size(2) + sized(repeat("x", large)) + size(large))
	c.fatal("E_BAD_BODY MPUB body too big 83886165 > 52428800")
}

// What a client announces costs nothing until it comes.
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

// slow takes its time to say that there is room for a put.
type slow struct{ edge.Publisher }

func (s slow) Admit(ctx context.Context, topic string, size int) error {
	time.Sleep(5500 * time.Millisecond)
	return s.Publisher.Admit(ctx, topic, size)
}

// A client that was not read, for there was no room for its put, is not closed for what
// it could not send meanwhile.
func TestRoomThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newBroker(t, piped, func(s *setup) { s.backend.Publisher = slow{s.backend.Publisher} }).dial()
		c.identify(`{"heartbeat_interval":1000}`)
		c.send("PUB t\n" + size(2) + "a")
		for range 5 {
			require.Equal(t, "_heartbeat_", c.read().data)
		}
		c.send("b")
		c.response("OK")
	})
}
