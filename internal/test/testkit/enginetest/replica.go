// Package enginetest hosts one partition on a real engine, store and journal, with a machine
// under the test's control: the machine publishes the view that the test sets. A batch that
// the test writes is committed when the view says so.
package enginetest

import (
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/store"
	"github.com/lockstepmq/lockstep/rpc"
)

// Topic is the name of the partition's topic.
const Topic = "orders"

// ID names the partition.
var ID = ident.Partition{Topic: 7}

// Replica is the partition with the parts that it runs on. Only the test's goroutine calls its
// methods.
type Replica struct {
	Engine    *engine.Engine
	Partition *engine.Partition
	Store     *store.Store
	Log       *logrus.Logger // discards its output
	End       ident.Position // end of the log
	// Time of the next batches; zero = long ago.
	Time time.Time

	t       *testing.T
	crc     uint32
	machine *machine
}

// New hosts the partition: it leads in epoch 1 and accepts no puts.
func New(t *testing.T, o nsqd.Options) *Replica { return NewOn(t, vfstest.NewMemory(), o) }

// NewOn hosts it on this file system.
func NewOn(t *testing.T, fs vfs.FS, o nsqd.Options) *Replica {
	r := &Replica{t: t, Log: logrus.New(), machine: &machine{}}
	r.Log.SetOutput(io.Discard)
	var err error
	r.Store, err = store.Open(store.Options{FS: fs, Dir: "data", BootID: "boot", SegmentBytes: 16 << 10, JournalBytes: 1 << 20, Log: r.Log})
	require.NoError(t, err)
	r.Engine = engine.New(engine.Options{
		Journal: r.Store, Transport: singleBroker{}, Proposer: singleBroker{}, Reserve: singleBroker{}, Reachability: singleBroker{},
		Moved: func() {}, Dead: func(*engine.Partition) {}, Log: r.Log,
	})
	t.Cleanup(func() {
		r.Engine.Stop()
		require.NoError(t, r.Store.Close())
	})
	p, err := r.Store.Create(Topic, ID)
	require.NoError(t, err)
	r.Partition = r.Engine.NewPartition(engine.Config{ID: ID, Topic: Topic, Store: p, Queue: o})
	r.Engine.Add(r.Partition, r.machine)
	r.Show(func(v *replica.View) { v.Role, v.Epoch = replica.Leader, 1 })
	return r
}

// Show changes the machine's view, and returns when it is published.
func (r *Replica) Show(change func(v *replica.View)) {
	r.machine.mu.Lock()
	change(&r.machine.view)
	r.machine.mu.Unlock()
	r.Partition.Post(replica.Tick{})
	r.Partition.Mute() // a barrier: all earlier events have taken effect
	r.Partition.Unmute()
}

// Write appends a batch to the log, has it committed, and returns its offset.
func (r *Replica) Write(d queue.Draft) ident.Offset {
	at := r.Append(d)
	r.Show(func(v *replica.View) { v.Committed = r.End })
	return at
}

// Append appends a batch to the log.
func (r *Replica) Append(d queue.Draft) ident.Offset {
	ms := max(1, r.Time.UnixMilli())
	b := d.Seal(r.End, 1, r.crc, ms*1e6)
	p := r.Partition.Store()
	p.Index().Append(commitlog.Record{
		Epoch: b.Epoch, First: b.At.Sequence, Count: b.Count, Offset: b.At.Offset,
		Size: uint32(len(b.Bytes)), CRC: b.CRC, PrevCRC: b.PrevCRC, TimeMS: ms,
	})
	done := make(synced, 1)
	if r.Store.Queue([]store.Submission{{Partition: p, Writes: []queue.Write{{Kind: queue.WriteAppend, Batches: []queue.Batch{b}}}}}, done, 1) {
		r.Store.Flush()
	}
	require.NoError(r.t, <-done)
	r.End, r.crc = b.End, b.CRC
	r.Show(func(v *replica.View) { v.End = r.End })
	return b.At.Offset
}

// Publish publishes a message.
func (r *Replica) Publish(body string) {
	d := queue.NewDraft(len(body))
	_ = d.AddMessage(queue.Message{Body: []byte(body)})
	r.Write(d.Draft(ident.RequestID{}))
}

// Channel creates a channel from the earliest message on, with a consumer.
func (r *Replica) Channel(name string) (*nsqd.Channel, *nsqd.Subscriber) {
	c, err := r.Partition.Queue().CreateChannel(r.t.Context(), name, nsqd.ChannelOptions{Origin: nsqd.FromEarliest})
	require.NoError(r.t, err)
	s := &nsqd.Subscriber{Direct: true, MsgTimeoutMS: 60_000}
	require.NoError(r.t, c.Attach(s))
	r.Partition.Queue().Extend(time.Now().Add(time.Hour).UnixNano())
	return c, s
}

// Fill publishes n messages of 1 KiB, which the consumer finishes, and makes a checkpoint.
func (r *Replica) Fill(n int, c *nsqd.Channel, s *nsqd.Subscriber) {
	for range n {
		r.Publish(string(make([]byte, 1<<10)))
	}
	for _, d := range c.Pull(s, n, nil) {
		require.NoError(r.t, c.Finish(s, nsqd.ReceiptOf(&d)))
	}
	require.NoError(r.t, r.Store.Checkpoint())
}

type synced chan error

func (s synced) Synced(_ uint64, err error) { s <- err }

// NewMachine returns a machine that does nothing.
func NewMachine() engine.Machine { return &machine{} }

// machine publishes the view that the test sets; it commits changes of channels at once.
type machine struct {
	mu   sync.Mutex
	view replica.View
}

// Step implements engine.Machine.
func (m *machine) Step(ev replica.Event, out *replica.Effects) {
	switch ev := ev.(type) {
	case replica.Change:
		if ev.Ticket != 0 {
			out.Done = append(out.Done, outcome.Completion{Ticket: ev.Ticket, Outcome: outcome.Committed})
		}
	case replica.Propose:
		for _, put := range ev.Puts {
			out.Done = append(out.Done, outcome.Completion{Ticket: put.Ticket, Outcome: outcome.NotLeader})
		}
	}
}

// View implements engine.Machine.
func (m *machine) View() replica.View {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.view
	v.ISR = slices.Clone(v.ISR)
	return v
}

// Idle implements engine.Machine.
func (m *machine) Idle() bool { return true }

// Committing implements engine.Machine.
func (m *machine) Committing() bool { return false }

// singleBroker is a cluster of one broker with a large disk.
type singleBroker struct{}

func (singleBroker) Send(ident.Node, rpc.Frame) error     { return nil }
func (singleBroker) Queue(ident.Node, rpc.Frame) error    { return nil }
func (singleBroker) Flush(ident.Node)                     {}
func (singleBroker) Propose(ident.Partition, replica.CAS) {}
func (singleBroker) Short([]ident.Member) bool            { return false }
func (singleBroker) Up(ident.Node) bool                   { return true }
func (singleBroker) AllUp() bool                          { return true }
func (singleBroker) Named(time.Time) time.Time            { return time.Time{} }
