package nsqd

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// batchLog counts how often a reader goes to another batch.
type batchLog struct {
	*memoryLog
	last     ident.Sequence
	switches int
}

const batchMessages = 100

func (l *batchLog) Read(from ident.Sequence, max int, dst []queue.Message) ([]queue.Message, error) {
	if from/batchMessages != l.last {
		l.last = from / batchMessages
		l.switches++
	}
	return l.memoryLog.Read(from, max, dst)
}

// TestWhatComesAgainIsReadInTheOrderOfTheLog, and delivered in that in which it came
// back: each of the messages of large batches, requeued with delays of their own, had
// its batch read anew.
func TestWhatComesAgainIsReadInTheOrderOfTheLog(t *testing.T) {
	r := newRig(Options{})
	l := &batchLog{memoryLog: r.log}
	r.Partition = NewPartition("orders", testID, l, r.rep, r.o)
	r.Lead(1)
	c := r.channel(t, "c", ChannelOptions{})
	s := subscribe(t, c)
	const n = 20 * batchMessages
	r.publishN(n)
	d := c.Pull(s, n, nil)
	require.Len(t, d, n)
	var want []ident.Sequence
	for i, at := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		require.NoError(t, c.Requeue(s, d[at].Message.Seq, int64(i+1)))
		want = append(want, d[at].Message.Seq)
	}
	r.tick(n + 1)
	l.switches = 0
	var got []ident.Sequence
	for _, x := range c.Pull(s, n, nil) {
		require.EqualValues(t, 2, x.Message.Attempts)
		got = append(got, x.Message.Seq)
	}
	require.Equal(t, want, got)
	require.LessOrEqual(t, l.switches, (n/redoMessages+1)*(n/batchMessages+1))
}
