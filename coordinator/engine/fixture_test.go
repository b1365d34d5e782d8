package engine

import (
	"io"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quiet is a log that discards its lines.
func quiet() logrus.FieldLogger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// cluster is the other brokers, as a test sets them.
type cluster struct {
	named   time.Time // when the metadata last named this broker
	short   bool      // some disk is
	missing bool      // no other broker answers
}

func (c *cluster) Short([]ident.Member) bool { return c.short }
func (c *cluster) Up(ident.Node) bool        { return !c.missing }
func (c *cluster) AllUp() bool               { return !c.missing }
func (c *cluster) Named(time.Time) time.Time { return c.named }

// newEngine is an engine without goroutines, on one loop if there is one.
func newEngine(l *loop) *Engine {
	c := &cluster{}
	e := &Engine{o: &Options{Reserve: c, Reachability: c, Moved: func() {}, Dead: func(*Partition) {}, Log: quiet()}, pace: newPace(), near: newNearTimer(), changes: &changes{}}
	if l == nil {
		l = newLoop(e.o, nil, e.pace)
	}
	e.loops, e.flusher = []*loop{l}, l.flusher
	l.flusher.loops = e.loops
	return e
}

// host hosts a partition of which the loop knows.
func (e *Engine) host(p *Partition) { e.partitions.set(p.id, p) }

// alone is one replica without others: a batch that is written to its store is committed.
type alone struct {
	t     *testing.T
	e     *Engine
	p     *Partition
	end   ident.Position
	crc   uint32
	store *store.Store
}

// Submit implements nsqd.Replicator.
func (a *alone) Submit(c nsqd.Change) { commitChange(c) }

func commitChange(c nsqd.Change) {
	if c.Done != nil {
		c.Done.Complete(outcome.Completion{Outcome: outcome.Committed})
	}
}

type synced chan error

func (s synced) Synced(_ uint64, err error) { s <- err }

func newAlone(t *testing.T) *alone {
	s, err := store.Open(store.Options{FS: vfstest.NewMemory(), Dir: "data", BootID: "boot", SegmentBytes: 16 << 10, JournalBytes: 1 << 20, Log: quiet()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	id := ident.Partition{Topic: 7}
	p, err := s.Create("orders", id)
	require.NoError(t, err)
	a := &alone{t: t, e: newEngine(nil), store: s, p: &Partition{id: id, topic: "orders", store: p}}
	a.p.view.Store(&replica.View{})
	a.queue(nsqd.Options{})
	a.e.host(a.p)
	return a
}

// queue gives the partition new channels, in which o's time passes, and which it leads.
func (a *alone) queue(o nsqd.Options) {
	o.Fence = &a.e.fence
	a.p.queue = nsqd.NewPartition("orders", a.p.id, a.p, a, o)
	a.p.queue.Lead(1)
}

// write puts a batch at the end of the log and gives its place.
func (a *alone) write(d queue.Draft) ident.Offset {
	b := d.Seal(a.end, 1, a.crc, 1e6)
	a.p.store.Index().Append(commitlog.Record{
		Epoch: b.Epoch, First: b.At.Sequence, Count: b.Count, Offset: b.At.Offset,
		Size: uint32(len(b.Bytes)), CRC: b.CRC, PrevCRC: b.PrevCRC, TimeMS: 1,
	})
	done := make(synced, 1)
	if a.store.Queue([]store.Submission{{Partition: a.p.store, Writes: []queue.Write{{Kind: queue.WriteAppend, Batches: []queue.Batch{b}}}}}, done, 1) {
		a.store.Flush()
	}
	require.NoError(a.t, <-done)
	a.end, a.crc = b.End, b.CRC
	a.p.view.Store(&replica.View{Role: replica.Follower, Committed: a.end, End: a.end})
	a.p.queue.Advance(a.end)
	return b.At.Offset
}

// say puts a message and has it committed here, as the leader.
func (a *alone) say(text string) {
	d := queue.NewDraft(0)
	_ = d.AddMessage(queue.Message{Body: []byte(text)})
	a.write(d.Draft(ident.RequestID{}))
	a.p.view.Store(&replica.View{Role: replica.Leader, Committed: a.end, End: a.end})
}
