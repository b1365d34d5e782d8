package transfer

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// export writes the topic of a side to a new file.
func export(t *testing.T, from *side, flags ...string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "orders.lsx")
	target := &cli.Target{}
	out, err := clitest.Run(t, cli.NewRoot(target, Commands(target)...), wait.Limit, append([]string{"export", "orders", "--file", file, "--nsqd-http-address", from.Listener.Addr().String()}, flags...)...)
	require.NoError(t, err, out)
	return file
}

// importInto reads a file into a side.
func importInto(t *testing.T, to *side, file string, flags ...string) string {
	t.Helper()
	target := &cli.Target{}
	out, err := clitest.Run(t, cli.NewRoot(target, Commands(target)...), wait.Limit, append([]string{"import", file, "--batch=3", "--nsqd-http-address", to.Listener.Addr().String()}, flags...)...)
	require.NoError(t, err, out)
	return out
}

// TestImportOfASourceThatWentBack: the same sequences name other messages in the second stream. They are published
// once, and a stream that was imported before is recognised.
func TestImportOfASourceThatWentBack(t *testing.T) {
	t.Parallel()
	east, west := newSide(t, "east", 7), newSide(t, "west", 8)
	east.publish(numbered("a", 10)...)
	first := export(t, east)
	importInto(t, west, first)
	east.restore(4)
	east.publish(numbered("b", 8)...)
	second := export(t, east)
	for range 2 {
		importInto(t, west, second)
		importInto(t, west, first)
	}
	require.Equal(t, append(numbered("a", 10), numbered("b", 8)...), west.bodies())
}

// TestExportOfManyMessages: a stream has the messages of several pages, each once and in their order.
func TestExportOfManyMessages(t *testing.T) {
	t.Parallel()
	east, west := newSide(t, "east", 7), newSide(t, "west", 8)
	all := numbered("a", 2*exportPage+exportPage/2)
	east.publish(all...)
	importInto(t, west, export(t, east), "--batch=1000")
	require.Equal(t, all, west.bodies())
}

// TestImportOfAnEarlierPart: the messages before those that the topic has are published, too.
func TestImportOfAnEarlierPart(t *testing.T) {
	t.Parallel()
	east, west := newSide(t, "east", 7), newSide(t, "west", 8)
	east.publish(numbered("a", 10)...)
	importInto(t, west, export(t, east, "--from=6"))
	importInto(t, west, export(t, east))
	require.Equal(t, append(numbered("a", 10)[6:], numbered("a", 6)...), west.bodies())
}

// TestImportOfDeferredMessagesBeforeTheStream: an ordered channel receives the message before all others, and an
// unordered one when it is due. Neither receives it twice.
func TestImportOfDeferredMessagesBeforeTheStream(t *testing.T) {
	t.Parallel()
	east, west := newSide(t, "east", 7), newSide(t, "west", 8)
	east.publish(numbered("a", 10)...)
	east.channels = []api.ChannelView{{Channel: "plain"}, {Channel: "strict", Ordered: true}}
	later := time.Now().Add(time.Hour).UnixNano()
	for _, name := range []string{"plain", "strict"} {
		east.positions = append(east.positions, api.ChannelPosition{Channel: name, Confirmed: 8, Deferred: []msgstream.DeferredPosition{
			{Sequence: 2, Attempts: 1}, {Sequence: 6, DeadlineNS: later}, {Sequence: 9, DeadlineNS: later},
		}})
	}
	file := export(t, east, "--from=5")
	for range 2 {
		out := importInto(t, west, file)
		require.NotContains(t, out, "note:")
		require.Equal(t, []string{"a2", "a5", "a6", "a7", "a8", "a9", "a2", "a6"}, west.bodies())
	}
	for at, channel := range map[int]string{0: "strict", 1: "", 6: "plain", 7: "plain"} {
		o, ok := msgstream.OriginOf(west.log[at].Header)
		require.True(t, ok)
		require.Equal(t, channel, o.Channel)
	}
	require.ElementsMatch(t, []string{
		"plain 0-4", "plain 0-4", // the copies 5 to 7; it has copies of its own of 2 and 6
		"strict 1-2 3-4", "strict 1-2 3-4", // 2 is its own at the front, 6 comes in its place
	}, west.finished)
}

// TestImportIntoSmallBodies: a target that takes smaller bodies than import sends receives all messages.
func TestImportIntoSmallBodies(t *testing.T) {
	t.Parallel()
	east, west := newSide(t, "east", 7), newSide(t, "west", 8)
	east.publish(numbered("a", 10)...)
	west.most = 300
	target := &cli.Target{}
	out, err := clitest.Run(t, cli.NewRoot(target, Commands(target)...), wait.Limit, "import", export(t, east), "--nsqd-http-address", west.Listener.Addr().String())
	require.NoError(t, err, out)
	require.Equal(t, numbered("a", 10), west.bodies())
}

// TestImportDuringAnElection: a partition without a serving leader, as that of a topic that was just created, delays
// the import and does not end it.
func TestImportDuringAnElection(t *testing.T) {
	t.Parallel()
	east, west := newSide(t, "east", 7), newSide(t, "west", 8)
	east.publish(numbered("a", 10)...)
	west.electing = 2
	importInto(t, west, export(t, east))
	require.Equal(t, numbered("a", 10), west.bodies())
}
