package coordinator

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/metrics"
	"github.com/lockstepmq/lockstep/internal/store"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
)

// alone is one replica without others: what is written to its store is committed.
type alone struct {
	t     *testing.T
	b     *Broker
	h     *hosted
	end   ident.Position
	crc   uint32
	store *store.Store

	timeMS int64 // of the next batches; 0 = long ago
}

// Change implements nsqd.Replicator.
func (a *alone) Change(p *nsqd.Partition, _ []byte, ticket uint64) { p.Completed(ticket, true) }

type synced chan error

func (s synced) Synced(_ uint64, err error) { s <- err }

func newAlone(t *testing.T) *alone {
	log := logrus.New()
	log.SetOutput(io.Discard)
	s, err := store.Open(store.Options{FS: vfs.NewMemory(), Dir: "data", BootID: "boot", SegmentBytes: 16 << 10, JournalBytes: 1 << 20, Log: log})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	id := ident.Partition{Topic: 7}
	p, err := s.Create("orders", id)
	require.NoError(t, err)
	b := &Broker{catalog: newCatalog(meta.Keys{Cluster: "test"}, log)}
	topic := meta.TopicState{V: meta.Version, ID: id.Topic, Partitions: 1}
	b.catalog.apply(meta.Change{Puts: []meta.Entry{{Key: b.catalog.keys.Topic("orders"), Value: meta.Encode(topic)}}})
	a := &alone{t: t, b: b, store: s, h: &hosted{id: id, topic: "orders", store: p}}
	a.h.view.Store(&replica.View{})
	a.h.queue = nsqd.NewPartition("orders", id, a.h, a, nsqd.Options{})
	a.h.queue.Lead(1)
	return a
}

// write puts a batch at the end of the log and gives its place.
func (a *alone) write(d queue.Draft) ident.Offset {
	b := d.Seal(a.end, 1, a.crc, max(1, a.timeMS)*1e6)
	a.h.store.Index().Append(commitlog.Record{
		Epoch: b.Epoch, First: b.At.Sequence, Count: b.Count, Offset: b.At.Offset,
		Size: uint32(len(b.Bytes)), CRC: b.CRC, PrevCRC: b.PrevCRC, TimeMS: max(1, a.timeMS),
	})
	done := make(synced, 1)
	a.store.Submit([]store.Submission{{Partition: a.h.store, Writes: []queue.Write{{Kind: queue.WriteAppend, Batches: []queue.Batch{b}}}}}, done, 1)
	require.NoError(a.t, <-done)
	a.end, a.crc = b.End, b.CRC
	a.h.view.Store(&replica.View{Role: replica.Follower, Committed: a.end, End: a.end})
	a.h.queue.Advance(a.end)
	return b.At.Offset
}

// fill puts n messages of 1 KiB, which the consumer finishes, and lets retention look.
func (a *alone) fill(n int, c *nsqd.Channel, s *nsqd.Subscriber) {
	for range n {
		d := queue.NewDraft(1 << 10)
		d.Add(make([]byte, 1<<10))
		a.write(d.Draft(ident.RequestID{}))
	}
	for _, d := range c.Pull(s, n, nil) {
		require.NoError(a.t, c.Finish(s, d.Message.Seq, 1))
	}
	require.NoError(a.t, a.store.Checkpoint())
	require.NoError(a.t, a.b.retain(a.t.Context(), a.h))
}

// TestRetentionKeepsWhatMayBeRepeated: all have finished it, and the answer of its put
// was lost. The leader's clock may be an hour slow, or fast.
func TestRetentionKeepsWhatMayBeRepeated(t *testing.T) {
	for _, off := range []time.Duration{-time.Hour, 0, time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			a := newAlone(t)
			c, err := a.h.queue.CreateChannel(t.Context(), "c", nsqd.ChannelOptions{Origin: nsqd.FromEarliest})
			require.NoError(t, err)
			s := &nsqd.Subscriber{}
			require.NoError(t, c.Attach(s))
			a.timeMS = time.Now().Add(off).UnixMilli()
			a.b.o.RepeatFor = time.Minute
			a.fill(40, c, s)
			require.Zero(t, a.h.store.Start().Offset)
			a.b.o.RepeatFor = time.Millisecond
			for a.h.store.Start().Offset == 0 && t.Context().Err() == nil {
				require.NoError(t, a.b.retain(t.Context(), a.h))
			}
		})
	}
}

// TestRetentionKeepsWhatWasPutAside: a replica that cannot carry a message forward, as it
// does not lead or the message is large, keeps where it lies: in the log, or in the batch
// that it was carried to.
func TestRetentionKeepsWhatWasPutAside(t *testing.T) {
	a := newAlone(t)
	c, err := a.h.queue.CreateChannel(t.Context(), "billing", nsqd.ChannelOptions{Origin: nsqd.FromEarliest})
	require.NoError(t, err)
	s := &nsqd.Subscriber{Direct: true, MsgTimeoutMS: 60_000}
	require.NoError(t, c.Attach(s))
	d := queue.NewDraft(8)
	d.Add([]byte("poison"))
	a.write(d.Draft(ident.RequestID{}))
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.Requeue(s, 0, 3_600_000))

	a.fill(100, c, s)
	require.Zero(t, a.h.Start().Offset)
	m, ok, err := a.h.message(0)
	require.NoError(t, err)
	require.True(t, ok)

	carry := queue.NewCarry()
	require.NoError(t, carry.Add(m))
	at := a.write(carry.Draft())
	require.NoError(t, a.h.queue.Carry(t.Context(), at, []ident.Sequence{0}))
	require.NoError(t, a.h.queue.Settle(t.Context(), at, []ident.Sequence{0}))
	for range 3 {
		a.fill(100, c, s)
		require.Positive(t, a.h.Start().Offset)
		require.LessOrEqual(t, a.h.Start().Offset, at)
		m, ok, err = a.h.message(0)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, "poison", string(m.Body))
	}
}

// TestMessagesOfLargeBatchesAreDetached: a message kept the whole batch in memory that it
// was put with. Many that come again, each read by itself, took gigabytes.
func TestMessagesOfLargeBatchesAreDetached(t *testing.T) {
	a := newAlone(t)
	d, carry := queue.NewDraft(500_000), queue.NewCarry()
	for i := range 1000 {
		m := queue.Message{Header: []byte(`{"n":1}`), Body: []byte(fmt.Sprintf("%500d", i)), Seq: ident.Sequence(i), Time: 1}
		require.NoError(t, d.AddMessage(m))
		require.NoError(t, carry.Add(m))
	}
	a.write(d.Draft(ident.RequestID{}))
	at := a.write(carry.Draft())
	read, err := a.h.Read(600, 2, nil)
	require.NoError(t, err)
	m, ok, err := a.h.ReadCarried(at, 602)
	require.NoError(t, err)
	require.True(t, ok)
	for i, m := range append(read, m) {
		require.Equal(t, fmt.Sprintf(`{"n":1}%500d`, 600+i), string(m.Header)+string(m.Body))
		require.Less(t, cap(m.Header)+cap(m.Body), 1000)
	}
	all, err := a.h.Read(0, 1000, nil)
	require.NoError(t, err)
	require.Len(t, all, 1000)
	require.Equal(t, fmt.Sprintf("%500d", 999), string(all[999].Body))
}

// countedLog counts the reads of a partition's channels and of its retention.
type countedLog struct {
	*hosted
	reads int
}

func (l *countedLog) Read(from ident.Sequence, max int, dst []queue.Message) ([]queue.Message, error) {
	l.reads++
	return l.hosted.Read(from, max, dst)
}

// TestWhatIsTooMuchIsNotReadAgain: retention read what had been put aside, up to a
// twentieth of the log, at each of its looks, and then found that it is too much to be
// carried.
func TestWhatIsTooMuchIsNotReadAgain(t *testing.T) {
	a := newAlone(t)
	l := &countedLog{hosted: a.h}
	a.h.queue = nsqd.NewPartition("orders", a.h.id, l, a, nsqd.Options{})
	a.h.queue.Lead(1)
	c, err := a.h.queue.CreateChannel(t.Context(), "billing", nsqd.ChannelOptions{Origin: nsqd.FromEarliest})
	require.NoError(t, err)
	s := &nsqd.Subscriber{Direct: true, MsgTimeoutMS: 60_000}
	require.NoError(t, c.Attach(s))
	for range 10 {
		d := queue.NewDraft(1 << 10)
		require.NoError(t, d.AddMessage(queue.Message{Body: make([]byte, 1<<10), DeliverAt: time.Now().Add(time.Hour).UnixNano()}))
		a.write(d.Draft(ident.RequestID{}))
	}
	require.Empty(t, c.Pull(s, 1, nil))
	a.fill(60, c, s)
	look := func() int {
		v := *a.h.View()
		v.Role, v.Writable = replica.Leader, true
		a.h.view.Store(&v)
		before := l.reads
		require.NoError(t, a.b.retain(t.Context(), a.h))
		return l.reads - before
	}
	require.Positive(t, look())
	require.Zero(t, look(), "the same again")
	a.fill(1, c, s)
	require.Zero(t, look(), "little has come")
	a.fill(20, c, s)
	require.Positive(t, look(), "much has come")
	require.Zero(t, a.h.Start().Offset)
}

// TestReadersSeeWhatIsCommitted: channels, readers of what was carried, and brokers
// that mend their disks.
func TestReadersSeeWhatIsCommitted(t *testing.T) {
	a := newAlone(t)
	a.b.mu.hosts = map[ident.Partition]*hosted{a.h.id: a.h}
	d := queue.NewDraft(8)
	d.Add([]byte("a"))
	a.write(d.Draft(ident.RequestID{}))
	committed := a.end
	m, ok, err := a.h.message(0)
	require.NoError(t, err)
	require.True(t, ok)
	carry := queue.NewCarry()
	require.NoError(t, carry.Add(m))
	at := a.write(carry.Draft())
	all := a.end
	for _, end := range []ident.Position{committed, all} {
		a.h.view.Store(&replica.View{Role: replica.Follower, Committed: end, End: all})
		_, ok, err = a.h.ReadCarried(at, 0)
		require.NoError(t, err)
		require.Equal(t, end == all, ok)
		r, err := a.b.serveBatches(batchesRequest{Topic: uint64(a.h.id.Topic)})
		require.NoError(t, err)
		require.Len(t, r.Batches, int(end.Offset))
		_, err = a.b.serveBatches(batchesRequest{Topic: uint64(a.h.id.Topic), From: int64(at)})
		require.Equal(t, end == all, err == nil)
	}
}

// spoken counts what is sent.
type spoken struct{ frames int }

func (s *spoken) Send(ident.Node, rpc.Frame) error {
	s.frames++
	return nil
}

func (s *spoken) Queue(n ident.Node, f rpc.Frame) error { return s.Send(n, f) }
func (s *spoken) Flush(ident.Node)                      {}

// TestMutedReplicaSaysNothing: it may be trashed any moment, so it acknowledges nothing.
func TestMutedReplicaSaysNothing(t *testing.T) {
	a, peers := newAlone(t), &spoken{}
	l := newLoop(&loop{peers: peers})
	for _, muted := range []bool{false, true} {
		a.h.muted.Store(muted)
		a.h.out.Send = []replica.Envelope{{To: "n2", Msg: replica.Message{Kind: replica.MsgAppendAck}}}
		l.deliver(a.h)
		require.Equal(t, 1, peers.frames)
	}
}

// TestPutsOfALoopThatEnds: what its machines have written may be committed by a later
// leader; what they have not got, and what comes now, is not stored.
func TestPutsOfALoopThatEnds(t *testing.T) {
	a := newAlone(t)
	l := newLoop(&loop{metrics: metrics.New(1)})
	a.b.loops = []*loop{l}
	l.hosts[a.h.id], a.h.loop, a.h.tickets = a.h, l, map[uint64]ticket{}
	answers := []outcome{make(outcome, 1), make(outcome, 1), make(outcome, 1), make(outcome, 1)}
	a.h.newTicket(ticket{put: answers[0]})
	a.h.puts = []replica.Put{{Ticket: a.h.newTicket(ticket{put: answers[1]})}}
	l.puts.Enter()
	l.puts.Enter()
	a.b.Propose(a.h.id, queue.Marker(), answers[2])
	l.shut()
	a.b.Propose(a.h.id, queue.Marker(), answers[3])
	for i, want := range []replica.Outcome{replica.InDoubt, replica.NotLeader, replica.NotLeader, replica.NotLeader} {
		require.Len(t, answers[i], 1)
		require.Equal(t, want, (<-answers[i]).Outcome)
	}
}

// TestFullTopicCarries: that makes room.
func TestFullTopicCarries(t *testing.T) {
	r, handle := gathering()
	r.host.ceiling.Store(1)
	done := make(outcome, 1)
	put := putOf(100)
	put.done = done
	handle(put)
	require.Equal(t, replica.TopicFull, (<-done).Outcome)
	carry := putOf(100)
	carry.draft.Control, carry.done = queue.ControlCarry, done
	handle(carry)
	require.Equal(t, []int{1}, r.groups)
}

// TestContactIsWhenItWasAsked: the answer may be late, and the registration gone since.
func TestContactIsWhenItWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &slowMeta{Store: meta.NewMemory()}
		defer m.Close()
		b := &Broker{o: Options{SessionTTL: 3 * time.Second}, meta: m, keys: meta.Keys{Cluster: "test"}, self: "n1", session: newSession(t, m)}
		require.NoError(t, b.session.register(t.Context()))
		b.contact.since = time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { b.keepContact(ctx) })
		defer done.Wait()
		defer cancel()
		time.Sleep(probeEvery + silence/4)
		require.Equal(t, probeEvery, time.Duration(b.contact.at.Load()))
		require.NoError(t, newSession(t, m.Store).register(ctx))
		time.Sleep(silence)
		require.Equal(t, probeEvery, time.Duration(b.contact.at.Load()), "that is another run")
	})
}

// slowMeta takes its time for an answer.
type slowMeta struct{ meta.Store }

func (m *slowMeta) Get(ctx context.Context, key string) (meta.Entry, error) {
	time.Sleep(silence / 5)
	return m.Store.Get(ctx, key)
}

// TestReplicaMovedBackStays: the watch has told of the move, and not yet of the way back.
func TestReplicaMovedBackStays(t *testing.T) {
	a := newAlone(t)
	b := a.b
	b.store, b.self, b.keys, b.log, b.meta = a.store, "n1", b.catalog.keys, b.catalog.log, meta.NewMemory()
	t.Cleanup(func() { require.NoError(t, b.meta.Close()) })
	key := b.keys.Partition(a.h.id)
	state := func(of ident.Node) []byte {
		return meta.Encode(meta.PartitionState{V: meta.Version, Replicas: []ident.Node{of}})
	}
	b.catalog.apply(meta.Change{Puts: []meta.Entry{{Key: key, Value: state("n2"), Mod: 1}}})
	for _, now := range []ident.Node{"n1", "n2"} {
		_, _, err := b.meta.Txn(t.Context(), nil, []meta.Put{{Key: key, Value: state(now)}})
		require.NoError(t, err)
		b.moveAway(t.Context(), a.h.id)
		_, stored := b.store.Partition(a.h.id)
		require.Equal(t, now == "n1", stored)
	}
}

// TestChangeOfATopicLooksAtNoOther: with thousands of topics, those that are made or
// deleted in a row do not have all others listed and sorted each time.
func TestChangeOfATopicLooksAtNoOther(t *testing.T) {
	a := newAlone(t)
	a.b.mu.hosts = map[ident.Partition]*hosted{a.h.id: a.h}
	a.b.topicChanged("orders")
	a.b.tellPolicies(a.h.id.Topic)
	require.Nil(t, a.b.mu.list, "all that is hosted was listed")
}

// TestMetadataLetsServeWhoHearsNobodyYet: a process that is stopped again and again never
// comes to trust what it believes of its replicas; the metadata's word is enough for a
// channel that is not ordered, while it is fresh.
func TestMetadataLetsServeWhoHearsNobodyYet(t *testing.T) {
	a := newAlone(t)
	a.b.members = newMembership(a.b)
	c, err := a.h.queue.CreateChannel(t.Context(), "c", nsqd.ChannelOptions{Origin: nsqd.FromEarliest})
	require.NoError(t, err)
	s := &nsqd.Subscriber{Direct: true, MsgTimeoutMS: 60_000}
	require.NoError(t, c.Attach(s))
	d := queue.NewDraft(8)
	d.Add([]byte("due"))
	a.write(d.Draft(ident.RequestID{}))
	a.h.view.Store(&replica.View{Role: replica.Leader, Committed: a.end, End: a.end, MinInSync: 0})
	now := time.Now()
	a.b.contact.since = now.Add(-time.Minute) // it answered a minute ago
	a.b.extend(a.h, now, false)
	require.Empty(t, c.Pull(s, 1, nil))
	a.b.contact.at.Store(int64(time.Minute)) // it answered now
	a.b.extend(a.h, now, false)
	require.Len(t, c.Pull(s, 1, nil), 1)
}
