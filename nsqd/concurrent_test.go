package nsqd

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// consume pulls at every wake-up until all messages are finished. It requeues some of them.
func consume(c *Channel, s *Subscriber, seed uint64, got func(api.Delivery), stop <-chan struct{}) {
	random := rand.New(rand.NewPCG(seed, 1))
	var buffer []api.Delivery
	for {
		select {
		case <-stop:
			return
		case <-s.Wake:
		}
		for {
			credit := 1 + random.IntN(20)
			buffer = c.Pull(s, credit, buffer[:0])
			for _, d := range buffer {
				if random.IntN(50) == 0 {
					_ = c.Requeue(s, ReceiptOf(&d), int64(random.IntN(2)))
					continue
				}
				if c.Finish(s, c.of(d.Message.Seq, 1)) == nil {
					got(d)
				}
			}
			if len(buffer) < credit {
				break // it waits: the channel owes it a wake-up
			}
		}
	}
}

func TestConcurrentSubscribersLoseNoWakeUpAndNoMessage(t *testing.T) {
	const total = 20_000
	r := newRig(Options{})
	consumeConcurrently(t, r, total, func() {
		for range total / 10 {
			r.publishN(10)
		}
	})
}

// consumeConcurrently lets some subscribers of a new channel finish n messages while they are
// published.
func consumeConcurrently(t *testing.T, r *rig, total int, publish func()) {
	const consumers = 8
	r.o.Now = func() int64 { return time.Now().UnixNano() }
	c := r.channel(t, "c", ChannelOptions{})
	var mu sync.Mutex
	seen := map[ident.Sequence]int{}
	all, stop := make(chan struct{}), make(chan struct{})
	got := func(d api.Delivery) {
		mu.Lock()
		defer mu.Unlock()
		seen[d.Message.Seq]++
		if len(seen) == total {
			close(all)
		}
	}
	var wg sync.WaitGroup
	for i := range consumers {
		s := &Subscriber{Direct: i%2 == 0}
		require.NoError(t, c.Attach(s))
		wg.Go(func() { consume(c, s, uint64(i), got, stop) })
	}
	wg.Go(func() { // the broker's clock
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				r.Expire(time.Now().UnixNano())
				r.Flush()
				_ = r.Snapshot()
				requireExactQuietly(c)
			}
		}
	})
	publish()
	wait.For(t, all, "all messages are finished")
	close(stop)
	wg.Wait()
	for seq, n := range seen {
		require.Equal(t, 1, n, "message %d was finished %d times", seq, n)
	}
	require.Equal(t, counts{finished: total, published: total}, countsOf(r.Partition, c))
}

// requireExactQuietly panics, because it runs outside the test's goroutine.
func requireExactQuietly(c *Channel) {
	s := c.stats(false, &mergedLatency{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if int(s.Depth)+s.InFlightCount+s.DeferredCount > int(c.publishedLocked()) {
		panic("more messages than were published")
	}
}

func TestEachWaitingSubscriberIsWoken(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	var all []*Subscriber
	for range 5 {
		s := subscribe(t, c)
		<-s.Wake
		require.Empty(t, c.Pull(s, 2, nil))
		all = append(all, s)
	}
	r.publishN(3) // enough for two of them
	woken := 0
	for _, s := range all {
		woken += len(s.Wake)
	}
	require.Equal(t, 2, woken)
	// Neither pulls: the others are woken when the offer lapses.
	require.LessOrEqual(t, r.Due(), r.clock.now()+offerNS)
	r.tick(5)
	r.tick(5)
	r.tick(5)
	for _, s := range all {
		require.Len(t, s.Wake, 1)
	}
	require.Len(t, c.Pull(all[4], 2, nil), 2)
	require.Len(t, c.Pull(all[3], 2, nil), 1)
}

func TestDirectSubscribersComeBeforeRelayed(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	relayed := &Subscriber{}
	require.NoError(t, c.Attach(relayed))
	<-relayed.Wake
	require.Empty(t, c.Pull(relayed, 10, nil))
	direct := subscribe(t, c)
	<-direct.Wake
	require.Empty(t, c.Pull(direct, 10, nil))
	r.publishN(4)
	require.Len(t, direct.Wake, 1)
	require.Empty(t, relayed.Wake)
	require.Empty(t, c.Pull(relayed, 10, nil), "offered to the direct subscriber")
	r.publishN(10)
	require.Len(t, c.Pull(relayed, 10, nil), 4, "more than it has credit for")
	require.Len(t, c.Pull(direct, 10, nil), 10)
}

func TestWithdrawnCreditPassesTheOfferOn(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	a, b := subscribe(t, c), subscribe(t, c)
	for _, s := range []*Subscriber{a, b} {
		<-s.Wake
		require.Empty(t, c.Pull(s, 1, nil))
	}
	r.publishN(1)
	<-a.Wake
	require.Empty(t, b.Wake)
	require.Empty(t, c.Pull(a, 0, nil))
	<-b.Wake
	require.Empty(t, c.Pull(a, 0, nil))
	require.Len(t, c.Pull(b, 1, nil), 1)
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// many is the number of messages in the tests of a large backlog: a million in a long run.
func many() int {
	if env.Long() {
		return 1 << 20
	}
	return 1 << 17
}

func TestManyDeferredMessagesCost64BytesEach(t *testing.T) {
	n := many()
	before := heapBytes()
	var c cursor.Cursor
	c.Unreplicated = true
	for i := range n {
		c.DeferUntil(cursor.NewEntry(ident.Sequence(i), int64(rand.N(1<<40)), 1))
	}
	each := float64(heapBytes()-before) / float64(n)
	t.Logf("%.1f bytes a message", each)
	require.LessOrEqual(t, each, 64.0)
	require.LessOrEqual(t, len(state.EncodeDelta([]state.Record{{Kind: state.KindProgress, Progress: c.Full()}})), 16*n+64)
	require.Equal(t, n, c.Deferred.Expire(1<<41, n))
	for i := range n {
		c.Finish(ident.Sequence(i))
	}
	require.EqualValues(t, n, c.SettledCount())
	require.Zero(t, c.Deferred.Len())
}

// TestManyDueAtOnceReleaseTheLock: the core loop can raise the limit before all messages are ready.
func TestManyDueAtOnceReleaseTheLock(t *testing.T) {
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	const n = 3 * dueBatch
	for i := range n {
		c.cursor.DeferUntil(cursor.NewEntry(ident.Sequence(i), int64(rand.N(1<<40)), 0))
	}
	for i := range 3 {
		require.True(t, c.fireTimers(1<<41))
		require.Equal(t, (i+1)*dueBatch, c.cursor.Deferred.Ready())
	}
	require.False(t, c.fireTimers(1<<41))
	require.Equal(t, n, c.cursor.Deferred.Ready())
}

// TestManyTimeoutsReleaseTheLock: forty hanging clients lose a hundred thousand messages to
// timeouts at one moment.
func TestManyTimeoutsReleaseTheLock(t *testing.T) {
	r := newRig(Options{MsgTimeoutMS: 1000})
	c := r.channel(t, "c", ChannelOptions{})
	s := subscribe(t, c)
	const n = 3 * dueBatch
	r.publishN(n)
	for got := 0; got < n; {
		d := c.Pull(s, n, nil)
		require.NotEmpty(t, d)
		got += len(d)
	}
	now := r.clock.add(1000 * nsPerMS)
	for i := range 3 {
		require.True(t, c.fireTimers(now))
		require.EqualValues(t, (i+1)*dueBatch, c.counts.Timeouts.Load())
	}
	require.False(t, c.fireTimers(now))
	require.Equal(t, n, c.cursor.Deferred.Ready())
}

func TestManyFinishesInRandomOrder(t *testing.T) {
	n := many()
	r := newRig(Options{})
	c := r.channel(t, "c", ChannelOptions{})
	s := subscribe(t, c)
	r.publishN(n)
	before := heapBytes()
	var buffer []api.Delivery
	for got := 0; got < n; got += len(buffer) {
		buffer = c.Pull(s, 1000, buffer[:0])
		require.NotEmpty(t, buffer)
	}
	most := 0
	for i, seq := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		require.NoError(t, c.Finish(s, c.of(ident.Sequence(seq), 1)))
		if i%(n/64) == 0 {
			most = max(most, len(c.cursor.Full().Settled))
			requireExact(t, r.Partition, c)
			r.Flush()
			r.rep.deltas = nil
		}
	}
	require.LessOrEqual(t, most, n/3)
	require.Empty(t, c.cursor.Full().Settled)
	require.EqualValues(t, n, c.cursor.Confirmed())
	require.Equal(t, counts{finished: n, published: n}, countsOf(r.Partition, c))
	t.Logf("at most %d ranges, %.1f MiB left", most, float64(heapBytes()-before)/(1<<20))
}

// follow is a client whose broker loses and regains the leadership. It attaches again after each
// loss.
func follow(p *Partition, finished func(ident.Sequence), stop <-chan struct{}) {
	var buffer []api.Delivery
	for {
		c, _ := p.Channel("c")
		s := &Subscriber{Direct: true}
		if c.Attach(s) != nil {
			select {
			case <-stop:
				return
			default:
				runtime.Gosched()
				continue
			}
		}
		for lost := false; !lost; {
			select {
			case <-stop:
				c.Detach(s, true)
				return
			case <-s.Lost:
				lost = true
			case <-s.Wake:
				for buffer = c.Pull(s, 7, buffer[:0]); len(buffer) > 0; buffer = c.Pull(s, 7, buffer[:0]) {
					for _, d := range buffer {
						if c.Finish(s, c.of(d.Message.Seq, d.Epoch)) == nil {
							finished(d.Message.Seq)
						}
					}
				}
			}
		}
	}
}

func TestLeadershipComesAndGoesUnderConsumers(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		const total = 3000
		r := newRig(Options{})
		r.o.Now = func() int64 { return time.Now().UnixNano() }
		r.channel(t, "c", ChannelOptions{Ordered: ordered})
		var mu sync.Mutex
		seen := map[ident.Sequence]int{}
		all, stop := make(chan struct{}), make(chan struct{})
		finished := func(seq ident.Sequence) {
			mu.Lock()
			defer mu.Unlock()
			seen[seq]++
			if len(seen) == total && seen[seq] == 1 {
				close(all)
			}
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { follow(r.Partition, finished, stop) })
		}
		for i := range total / 10 {
			r.publishN(10)
			r.Expire(time.Now().UnixNano())
			r.Flush()
			if i%10 == 9 {
				r.Unlead()
				r.Apply(state.EncodeDelta(nil))
				r.Lead(ident.Epoch(2 + i))
			}
		}
		wait.Until(t, func() bool {
			r.Expire(time.Now().UnixNano())
			select {
			case <-all:
				return true
			default:
				return false
			}
		}, "all messages are finished")
		close(stop)
		wg.Wait()
		for seq, n := range seen {
			require.Equal(t, 1, n, "the state was never lost, so message %d is finished once", seq)
		}
	}
}

// slowLog lets a test block a read.
type slowLog struct {
	*memoryLog
	entered, release chan struct{}
}

func (l *slowLog) Read(from ident.Sequence, max int, dst []queue.Message) ([]queue.Message, error) {
	l.entered <- struct{}{}
	<-l.release
	return l.memoryLog.Read(from, max, dst)
}

func TestReadReleasesTheLock(t *testing.T) {
	r := newRig(Options{})
	slow := &slowLog{r.log, make(chan struct{}), make(chan struct{})}
	r.source = slow
	c := r.channel(t, "c", ChannelOptions{})
	a, b := subscribe(t, c), subscribe(t, c)
	<-b.Wake
	r.publishN(3)
	pulled := make(chan []api.Delivery)
	go func() { pulled <- c.Pull(a, 1, nil) }()
	<-slow.entered
	require.Empty(t, c.Pull(b, 5, nil), "another goroutine reads: do not wait")
	r.publishN(1)
	r.tick(1)
	require.Empty(t, b.Wake, "no message is available before the end of the read")
	slow.release <- struct{}{}
	require.Len(t, <-pulled, 1)
	<-b.Wake
	require.Len(t, c.Pull(b, 3, nil), 3, "read ahead")
	r.publishN(2)
	go func() { pulled <- c.Pull(b, 5, nil) }()
	<-slow.entered
	require.NoError(t, r.EmptyChannel(t.Context(), "c"))
	slow.release <- struct{}{}
	require.Empty(t, <-pulled, "the cursor moved during the read")
	require.Zero(t, c.InFlight(b))
	require.Equal(t, counts{finished: 6, published: 6}, countsOf(r.Partition, c))
}
