package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// newLeading is a broker that leads one partition, in whose queue o's time passes.
func newLeading(t *testing.T, o nsqd.Options) *alone {
	a := newAlone(t)
	log := logrus.New()
	log.SetOutput(io.Discard)
	a.b.log, a.b.self = log, "n1"
	a.b.members = &membership{broker: a.b}
	a.b.mu.hosts = map[ident.Partition]*hosted{a.h.id: a.h}
	o.Fence = &a.b.fence
	a.h.queue = nsqd.NewPartition("orders", a.h.id, a.h, a, o)
	a.h.queue.Lead(1)
	return a
}

// say puts a message and has it committed here.
func (a *alone) say(text string) {
	d := queue.NewDraft(0)
	d.Add([]byte(text))
	a.write(d.Draft(ident.RequestID{}))
	a.h.view.Store(&replica.View{Role: replica.Leader, Committed: a.end, End: a.end})
}

// TestClockThatIsSetBack: the fence that all partitions share goes with it, and what
// they have to do is looked at.
func TestClockThatIsSetBack(t *testing.T) {
	a := newLeading(t, nsqd.Options{})
	now := time.Now()
	a.b.fence.Store(now.UnixNano())
	a.b.setBack(time.Hour)
	require.Equal(t, now.Add(-time.Hour).UnixNano(), a.b.fence.Load())
	require.Len(t, a.b.agenda.take(0, nil), 1)
}

// TestFenceThatOpensWakes: who waited for a message that came while the leader was
// silent hears of it when all brokers answer again.
func TestFenceThatOpensWakes(t *testing.T) {
	a := newLeading(t, nsqd.Options{})
	c, err := a.h.queue.CreateChannel(t.Context(), "ch", nsqd.ChannelOptions{})
	require.NoError(t, err)
	s := &nsqd.Subscriber{Direct: true}
	require.NoError(t, c.Attach(s))
	<-s.Wake
	a.b.fence.Store(time.Now().Add(-time.Second).UnixNano())
	require.Empty(t, c.Pull(s, 1, nil))
	a.say("m0")
	require.Empty(t, s.Wake)
	a.b.extendAll(time.Now(), true)
	require.NotEmpty(t, s.Wake)
	require.Greater(t, a.b.fence.Load(), time.Now().UnixNano())
}

// TestChangeOfAPartitionThatHasGone: who waits for it hears so, wherever the change was.
func TestChangeOfAPartitionThatHasGone(t *testing.T) {
	for _, ended := range []bool{false, true} {
		a := newAlone(t)
		l := newLoop(&loop{})
		a.h.loop = l
		a.h.queue = nsqd.NewPartition("orders", a.h.id, a.h, a.h, nsqd.Options{})
		a.h.queue.Lead(1)
		done := make(chan error, 1)
		go func() {
			_, err := a.h.queue.CreateChannel(context.Background(), "ch", nsqd.ChannelOptions{})
			done <- err
		}()
		<-l.mail.wake
		if ended {
			l.shut()
		} else {
			for _, w := range l.mail.take(nil) {
				l.handle(&w)
			}
		}
		require.ErrorIs(t, <-done, nsqd.ErrNotReplicated)
	}
}

// TestEndOfALoopEndsWhatItWasToHost: nobody is to read from its view that it serves.
func TestEndOfALoopEndsWhatItWasToHost(t *testing.T) {
	a := newAlone(t)
	l := newLoop(&loop{})
	a.h.loop, a.h.leads = l, 1
	l.mail.post(work{kind: workAdd, id: a.h.id, hosted: a.h})
	l.shut()
	require.Equal(t, replica.Stopped, a.h.View().Role)
}

// TestRetiredMachineStands: it gets no time and hears of no sync, or it would send.
func TestRetiredMachineStands(t *testing.T) {
	r, handle := gathering()
	handle(putOf(100))
	r.loop.active = []*hosted{r.host}
	delete(r.loop.hosts, r.host.id)
	r.loop.nowMS += 1000
	r.loop.tick()
	r.loop.synced(r.loop.token, nil)
	require.Empty(t, r.loop.touched)
	r.loop.keepActive()
	require.Empty(t, r.loop.active)
}

// TestWhoIsCutOff: the word of the leader's present run about itself, for others.
func TestWhoIsCutOff(t *testing.T) {
	b := &Broker{self: "n2"}
	b.members = &membership{broker: b}
	b.members.mu.peers = map[ident.Node]peerState{"n3": {up: true}}
	s := meta.PartitionState{Replicas: []ident.Node{"n1", "n2", "n3"}, Leader: "n1", LeaderIncarnation: 5, MinInSync: 2}
	for _, n := range s.Replicas {
		s.ISR = append(s.ISR, ident.Member{Node: n, Store: 1})
	}
	r := registration{NodeState: meta.NodeState{Name: "n1", Unreached: []ident.Node{"n2", "n3"}}, Incarnation: 5}
	require.True(t, b.cutOff(s, r))
	r.Incarnation = 6
	require.False(t, b.cutOff(s, r), "another run said so")
	s.Leader, r.Name, r.Incarnation, r.Unreached = "n2", "n2", 5, []ident.Node{"n1", "n3"}
	b.members.mu.peers["n1"] = peerState{up: true}
	require.False(t, b.cutOff(s, r), "it reaches them again")
}

// bounded takes transactions of the size that etcd takes.
type bounded struct {
	t *testing.T
	meta.Store
}

func (b bounded) Txn(ctx context.Context, cmp []meta.Compare, puts []meta.Put) (bool, int64, error) {
	require.LessOrEqual(b.t, len(puts), meta.MaxTxn)
	return b.Store.Txn(ctx, cmp, puts)
}

// TestOldMarksGo: those that were there when the last look began at which the same
// brokers were there, in transactions that are not too large, while the fence holds.
func TestOldMarksGo(t *testing.T) {
	store := bounded{t, meta.NewMemory()}
	defer store.Close()
	log := logrus.New()
	log.SetOutput(io.Discard)
	keys := meta.Keys{Cluster: "test"}
	b := &Broker{meta: store, keys: keys, catalog: newCatalog(keys, log), log: log, ctx: t.Context()}
	run := func(incarnation int64) {
		b.catalog.apply(meta.Change{Puts: []meta.Entry{
			{Key: keys.Node("n1"), Value: meta.Encode(meta.NodeState{V: meta.Version, Name: "n1"})},
			{Key: keys.Live("n1"), Value: meta.Encode(meta.NodeState{V: meta.Version, Name: "n1"}), Create: incarnation, Mod: incarnation},
		}})
	}
	made := 0
	mark := func(n int) {
		for range n {
			_, _, err := store.Txn(t.Context(), nil, []meta.Put{{Key: keys.Audit(fmt.Sprintf("%s%d", deletedTopics, made)), Value: []byte("{}")}})
			require.NoError(t, err)
			made++
		}
	}
	fence := meta.Compare{Key: "/nobody"}
	look := func(want int) {
		t.Helper()
		b.dropMarks(fence)
		b.done.Wait()
		left, _, err := store.List(t.Context(), keys.Audit(deletedTopics))
		require.NoError(t, err)
		require.Len(t, left, want)
	}
	few, many := 5, meta.MaxTxn+5
	run(1)
	mark(few)
	look(few)
	run(2)
	look(few) // a broker was away
	fence = meta.Compare{Key: "/nobody", Create: 7, Mod: -1}
	look(few) // another one controls
	fence = meta.Compare{Key: "/nobody"}
	mark(1)
	look(1) // it came later
	mark(many)
	look(many)
	look(0)
}

// TestHeaderOfADeadLetter: one that cannot go along stays behind, and not the message.
func TestHeaderOfADeadLetter(t *testing.T) {
	for header, kept := range map[string]bool{
		`{"a":"b"}`: true, `{"a"`: false, `{"a":"` + strings.Repeat("b", queue.MaxMessageHeader) + `"}`: false, "": false,
	} {
		d := edge.Delivery{Message: queue.Message{Header: []byte(header), Attempts: 3}}
		raw := letterHeader("orders", "billing", d)
		require.LessOrEqual(t, len(raw), queue.MaxMessageHeader)
		var h deadLetter
		require.NoError(t, json.Unmarshal(raw, &h), "%.20s", header)
		require.Equal(t, "billing", h.Channel)
		require.Equal(t, kept, len(h.Header) > 0)
	}
}

// TestDeadMessageThatCannotGoIsTriedAgain: soon, and not when everybody has forgotten it.
func TestDeadMessageThatCannotGoIsTriedAgain(t *testing.T) {
	var now atomic.Int64
	now.Store(1e9)
	a := newLeading(t, nsqd.Options{Now: now.Load, Policy: func(string) nsqd.Policy { return nsqd.Policy{MaxAttempts: 1} }})
	c, err := a.h.queue.CreateChannel(t.Context(), "ch", nsqd.ChannelOptions{})
	require.NoError(t, err)
	s := &nsqd.Subscriber{Direct: true}
	require.NoError(t, c.Attach(s))
	a.say("m0")
	require.Len(t, c.Pull(s, 1, nil), 1)
	require.NoError(t, c.Requeue(s, 0, 0))
	for range 2 {
		dead := c.Dead()
		require.Len(t, dead, 1)
		require.False(t, a.b.move(t.Context(), a.h, c, dead), "it has nowhere to go")
		require.Empty(t, c.Dead())
		a.h.queue.Expire(now.Add(1100 * int64(time.Millisecond)))
	}
}

// TestWhatIsTooMuch: for how long another look is most likely in vain.
func TestWhatIsTooMuch(t *testing.T) {
	began := time.Now()
	x := tooMuch{start: 1000, may: 9000, at: began}
	for next, want := range map[tooMuch]bool{
		{start: 1000, may: 9900, at: began.Add(carryAgain - 1)}: true,
		{start: 1001, may: 9900, at: began}:                     false, // another file is the oldest
		{start: 1000, may: 10_000, at: began}:                   false, // the log has grown
		{start: 1000, may: 9900, at: began.Add(carryAgain)}:     false, // a while ago
	} {
		require.Equal(t, want, x.still(next), "%+v", next)
	}
}

// TestCarriedBatches: they are not too large, and each message is found in its own.
func TestCarriedBatches(t *testing.T) {
	a := newLeading(t, nsqd.Options{})
	for _, text := range []string{"a", "b"} {
		a.say(strings.Repeat(text, 200<<10))
	}
	seqs := []ident.Sequence{0, 1, 0, 1}
	drafts, err := a.h.gather(seqs, 1<<20)
	require.NoError(t, err)
	require.Len(t, drafts, 2)
	_, err = a.h.gather(seqs, 300<<10)
	require.ErrorIs(t, err, errTooMuch)

	from, place := a.end.Offset, map[ident.Sequence]ident.Offset{}
	var carries [2]queue.Draft
	for seq := range ident.Sequence(2) {
		drafts, err := a.h.gather([]ident.Sequence{seq}, 1<<20)
		require.NoError(t, err)
		carries[seq] = drafts[0]
		place[seq] = a.write(drafts[0])
	}
	for seq, d := range carries {
		at, seqs, err := a.h.findCarried(from, d)
		require.NoError(t, err)
		require.Equal(t, place[ident.Sequence(seq)], at)
		require.Equal(t, []ident.Sequence{ident.Sequence(seq)}, seqs)
	}
	m, ok, err := a.h.ReadCarried(place[0], 0)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, byte('a'), m.Body[0])
	_, ok, _ = a.h.ReadCarried(place[0]+1, 0)
	require.False(t, ok, "no batch begins there")
}

// TestLimitsOfAPartition: what a topic may keep, and may hold, is shared by its
// partitions; what is put aside counts for the latter.
func TestLimitsOfAPartition(t *testing.T) {
	a := newLeading(t, nsqd.Options{})
	c, err := a.h.queue.CreateChannel(t.Context(), "ch", nsqd.ChannelOptions{})
	require.NoError(t, err)
	s := &nsqd.Subscriber{Direct: true}
	require.NoError(t, c.Attach(s))
	for range 10 {
		a.say(strings.Repeat("x", 1000))
	}
	end := a.end.Offset
	topic := meta.TopicState{Partitions: 4}
	topic.Options.RetentionBytes = 8000
	require.Equal(t, end-2000, a.h.replayFrom(topic))
	topic.Options.RetentionBytes = 80_000
	require.Zero(t, a.h.replayFrom(topic))

	topic.Options.MaxBytes = 80_000
	a.h.limit(topic, 0)
	require.EqualValues(t, 20_000, a.h.ceiling.Load())
	require.Len(t, c.Pull(s, 5, nil), 5)
	for seq := range ident.Sequence(5) {
		require.NoError(t, c.Requeue(s, seq, 60_000))
	}
	a.h.limit(topic, 0)
	require.EqualValues(t, 20_000-int64(end)/2, a.h.ceiling.Load())
}

// TestTombstonesEnd: in their time, and before they take all memory.
func TestTombstonesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hidden := newTombstones(time.Minute)
		hidden.add("orders", "n1")
		time.Sleep(time.Minute - time.Millisecond)
		require.True(t, hidden.hides("orders", "n1"))
		require.False(t, hidden.hides("orders", "n2"))
		time.Sleep(time.Millisecond)
		require.False(t, hidden.hides("orders", "n1"))
		for n := range 2 * maxTombstones {
			hidden.add("orders", fmt.Sprint(n))
		}
		require.LessOrEqual(t, len(hidden.until), maxTombstones)
		require.True(t, hidden.hides("orders", fmt.Sprint(2*maxTombstones-1)))
	})
}

// TestPutsThatGatherCount: for the topic's limit, and for the size of a group; and those
// that have waited for a sync wait for the next one, too.
func TestPutsThatGatherCount(t *testing.T) {
	r, handle := gathering()
	r.slow = true
	handle(putOf(100))
	r.host.ceiling.Store(150)
	handle(putOf(100))
	done := make(outcome, 1)
	third := putOf(100)
	third.done = done
	handle(third)
	require.Len(t, done, 1)
	require.Equal(t, replica.TopicFull, (<-done).Outcome)

	r, _ = gathering()
	w := putOf(groupBytes * 2 / 3)
	w.id = r.host.id
	for range 2 {
		r.loop.handle(&w)
	}
	r.loop.finish()
	require.Equal(t, []int{1, 1}, r.groups)

	r, handle = gathering()
	for n := range 3 {
		r.loop.token++ // another partition's
		r.loop.passes = append(r.loop.passes, pass{token: r.loop.token})
		handle(putOf(100))
		require.Len(t, r.groups, n)
		handle(work{kind: workSynced, ticket: r.loop.token})
		require.Len(t, r.groups, n+1)
		handle(work{kind: workSynced, ticket: r.tokens[n]})
	}
}
