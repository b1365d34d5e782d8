package maintenance

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/enginetest"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// retained is one replica and its retention.
type retained struct {
	*enginetest.Replica
	t         *testing.T
	topic     metadata.TopicState
	catalog   *catalog.Catalog
	retention *retention
}

func newRetained(t *testing.T) *retained {
	r := &retained{Replica: enginetest.New(t, nsqd.Options{}), t: t, topic: metadata.TopicState{ID: enginetest.ID.Topic, Partitions: 1}}
	r.catalog = catalog.New(metadata.Keys{}, r.Log)
	b := &Broker{Engine: r.Engine, Store: r.Store, Catalog: r.catalog, Log: r.Log}
	r.retention = newRetention(b, newSpace(b))
	return r
}

// applyTopic puts the topic into the catalog.
func (r *retained) applyTopic() {
	r.topic.V = metadata.Version
	r.catalog.Apply(metadata.Change{Puts: []metadata.Entry{{Key: metadata.Keys{}.Topic(enginetest.Topic), Value: metadata.Encode(r.topic)}}})
}

// look runs retention once.
func (r *retained) look() {
	r.t.Helper()
	r.applyTopic()
	require.NoError(r.t, r.retention.retain(r.t.Context(), r.Partition))
}

// fill writes n messages, which the consumer finishes, and runs retention.
func (r *retained) fill(n int, c *nsqd.Channel, s *nsqd.Subscriber) {
	r.t.Helper()
	r.Fill(n, c, s)
	r.look()
}

// TestRetentionKeepsWhatMayBeRepeated: all channels have finished a put whose answer was
// lost. The leader's clock may be an hour slow, or fast.
func TestRetentionKeepsWhatMayBeRepeated(t *testing.T) {
	for _, off := range []time.Duration{-time.Hour, 0, time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			r := newRetained(t)
			c, s := r.Channel("c")
			r.Time = time.Now().Add(off)
			r.retention.RepeatFor = time.Minute
			r.fill(40, c, s)
			require.Zero(t, r.Partition.Start().Offset)
			r.retention.RepeatFor = time.Millisecond
			for r.Partition.Start().Offset == 0 && t.Context().Err() == nil {
				r.look()
			}
		})
	}
}

// TestRetentionKeepsDeferredMessages: a replica that cannot relocate a message, as it does not lead or the message is
// large, keeps its place: in the log, or in the batch that it was relocated to.
func TestRetentionKeepsDeferredMessages(t *testing.T) {
	r := newRetained(t)
	c, s := r.Channel("billing")
	r.Publish("poison")
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.Requeue(s, nsqd.Receipt{Epoch: 1, Number: 1}, 3_600_000))

	r.fill(100, c, s)
	require.Zero(t, r.Partition.Start().Offset)
	m, ok, err := message(r.Partition, 0)
	require.NoError(t, err)
	require.True(t, ok)

	carry := queue.NewRelocation()
	require.NoError(t, carry.Add(m))
	at := r.Write(carry.Draft())
	require.NoError(t, r.Partition.Queue().Relocate(t.Context(), at, []ident.Sequence{0}, false))
	require.NoError(t, r.Partition.Queue().Relocate(t.Context(), at, []ident.Sequence{0}, true))
	for range 3 {
		r.fill(100, c, s)
		require.Positive(t, r.Partition.Start().Offset)
		require.LessOrEqual(t, r.Partition.Start().Offset, at)
		m, ok, err = message(r.Partition, 0)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "poison", string(m.Body))
	}
}

// TestWhatIsTooMuchIsNotReadAgain: retention read the deferred messages, up to a twentieth
// of the log, at each of its passes, and then found that they are too much to be relocated.
func TestWhatIsTooMuchIsNotReadAgain(t *testing.T) {
	r := newRetained(t)
	c, s := r.Channel("billing")
	for range 10 {
		d := queue.NewDraft(1 << 10)
		require.NoError(t, d.AddMessage(queue.Message{Body: make([]byte, 1<<10), DeliverAt: time.Now().Add(time.Hour).UnixNano()}))
		r.Write(d.Draft(ident.RequestID{}))
	}
	require.Empty(t, c.Pull(s, 1, nil))
	r.fill(60, c, s)
	r.Show(func(v *replica.View) { v.Writable = true })
	memory := &logMemory{}
	r.retention.logs[r.Partition] = memory
	read := func() bool {
		before := memory.tooMuch.at
		r.look()
		return memory.tooMuch.at != before
	}
	require.True(t, read())
	require.False(t, read(), "the same again")
	r.Fill(1, c, s)
	require.False(t, read(), "little has come")
	r.Fill(20, c, s)
	require.True(t, read(), "much has come")
	require.Zero(t, r.Partition.Start().Offset)
}

// TestWhatIsTooMuch: how long another attempt would most likely fail.
func TestWhatIsTooMuch(t *testing.T) {
	began := time.Now()
	x := tooMuch{start: 1000, may: 9000, at: began}
	for next, want := range map[tooMuch]bool{
		{start: 1000, may: 9900, at: began.Add(relocateAgain - 1)}: true,
		{start: 1001, may: 9900, at: began}:                        false, // another file is the oldest
		{start: 1000, may: 10_000, at: began}:                      false, // the log has grown
		{start: 1000, may: 9900, at: began.Add(relocateAgain)}:     false, // a while ago
	} {
		require.Equal(t, want, x.still(next), "%+v", next)
	}
}

// TestRelocationBatches: they are not too large, and each message is found in its own.
func TestRelocationBatches(t *testing.T) {
	r := newRetained(t)
	for _, text := range []string{"a", "b"} {
		r.Publish(strings.Repeat(text, 200<<10))
	}
	seqs := []ident.Sequence{0, 1, 0, 1}
	drafts, err := gather(r.Partition, seqs, 1<<20)
	require.NoError(t, err)
	require.Len(t, drafts, 2)
	_, err = gather(r.Partition, seqs, 300<<10)
	require.ErrorIs(t, err, errTooMuch)

	from, place := r.End.Offset, map[ident.Sequence]ident.Offset{}
	var batches [2]queue.Draft
	for seq := range ident.Sequence(2) {
		drafts, err := gather(r.Partition, []ident.Sequence{seq}, 1<<20)
		require.NoError(t, err)
		batches[seq] = drafts[0]
		place[seq] = r.Write(drafts[0])
	}
	for seq, d := range batches {
		at, seqs, err := findRelocation(r.Partition, from, d)
		require.NoError(t, err)
		require.Equal(t, place[ident.Sequence(seq)], at)
		require.Equal(t, []ident.Sequence{ident.Sequence(seq)}, seqs)
	}
	m, ok, err := r.Partition.ReadRelocated(place[0], 0)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, byte('a'), m.Body[0])
	_, ok, _ = r.Partition.ReadRelocated(place[0]+1, 0)
	require.False(t, ok, "no batch begins there")
}

// TestReplayOfAPartition: the bytes that a topic keeps are shared by its partitions.
func TestReplayOfAPartition(t *testing.T) {
	r := newRetained(t)
	for range 10 {
		r.Publish(strings.Repeat("x", 1000))
	}
	topic := metadata.TopicState{Partitions: 4}
	topic.Options.RetentionBytes = 8000
	require.Equal(t, r.End.Offset-2000, replayFrom(r.Partition, topic))
	topic.Options.RetentionBytes = 80_000
	require.Zero(t, replayFrom(r.Partition, topic))
}

// TestLimitOfATopic: its partitions share it, and retention keeps it up to date.
func TestLimitOfATopic(t *testing.T) {
	r := newRetained(t)
	r.look()
	require.False(t, r.Partition.Limited())
	r.topic.Options.MaxBytes = 1000
	require.EqualValues(t, 1000, r.topic.PartitionMaxBytes())
	r.look()
	require.True(t, r.Partition.Limited())
	r.topic.Options.MaxBytes = 0
	r.look()
	require.False(t, r.Partition.Limited())
	r.topic.Partitions, r.topic.Options.MaxBytes = 4, 80_000
	require.EqualValues(t, 20_000, r.topic.PartitionMaxBytes())
	r.topic.Options.MaxBytes = 1
	require.EqualValues(t, 1, r.topic.PartitionMaxBytes(), "a limit, however small")
}

// TestRetentionForgetsRemovedLogs: a partition that is no longer hosted keeps no memory, nor do its channels.
func TestRetentionForgetsRemovedLogs(t *testing.T) {
	r := newRetained(t)
	r.topic.Options.MaxBytes = 1000
	r.applyTopic()
	r.retention.run(context.Background())
	require.Len(t, r.retention.logs, 1)
	r.Engine.Remove(enginetest.ID)
	r.retention.run(context.Background())
	require.Empty(t, r.retention.logs)
}
