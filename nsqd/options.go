package nsqd

import (
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// What the operations of this package answer, beside edge.ErrNotInFlight,
// edge.ErrNotOwner and edge.ErrChannelNotFound.
var (
	// ErrNotLeader: this broker does not lead the partition (any more). A change
	// that waited may or may not have reached the next leader.
	ErrNotLeader = errors.New("nsqd: not the leader of this partition")
	// ErrDeleted: the channel was deleted.
	ErrDeleted = errors.New("nsqd: channel is deleted")
	// ErrNotReplicated: a change did not reach all of the in-sync replicas.
	ErrNotReplicated = errors.New("nsqd: change was not replicated")
	// ErrAttached: the subscriber is attached already.
	ErrAttached = errors.New("nsqd: subscriber is attached already")
)

// Log is what channels need of their partition's log.
type Log interface {
	// Committed is the committed end. No I/O.
	Committed() ident.Position
	// Start is the first position still held. No I/O.
	Start() ident.Position
	// Read appends at most max committed messages from sequence `from` on to
	// dst, at least one if there is one. It may read a disk: it is called
	// without locks. The first message has a higher sequence than `from` only if
	// retention has taken the ones between.
	Read(from ident.Sequence, max int, dst []queue.Message) ([]queue.Message, error)
	// ReadCarried finds a message in the committed carry batch that begins at an
	// offset. False: it is not there. It may read a disk.
	ReadCarried(at ident.Offset, seq ident.Sequence) (queue.Message, bool, error)
}

// Replicator takes changes of the channel state to the other replicas.
type Replicator interface {
	// Change hands in a delta, in the order of the calls. It only posts. A ticket
	// other than 0 comes back in exactly one Partition.Completed, unless
	// Partition.Unlead comes first.
	Change(p *Partition, delta []byte, ticket uint64)
}

// Options of a partition's channels. Zero values take the defaults.
type Options struct {
	MsgTimeoutMS    int64 // 60,000: for subscribers that name none
	MaxMsgTimeoutMS int64 // 900,000: TOUCH cannot stretch a delivery beyond it
	MaxReqTimeoutMS int64 // 3,600,000: longer requeue delays are clamped to it
	// EphemeralDepth is how many undelivered messages an ephemeral channel keeps;
	// newer ones are discarded (10,000, NSQ's --mem-queue-size).
	EphemeralDepth int64
	// Percentiles of the end-to-end latency, 0–1; none = not measured.
	Percentiles []float64
	// PercentileWindowMS is how far back they look (600,000).
	PercentileWindowMS int64
	// Policy gives the policy of a channel that is made; nil = none. It must not
	// block.
	Policy func(channel string) Policy
	// Wake is told that Expire, Flush or Dead has something to do, and when: unix
	// ns, 0 = soon. It is called under locks: it must neither block nor call back.
	// nil = the caller looks by itself.
	Wake func(atNS int64)
	// Fence is until when (unix ns) the channels of all partitions that share it
	// may deliver, whatever Partition.Extend says; 0, as with nil: only that counts.
	Fence *atomic.Int64
	// Pace slows channels that are far behind; nil = none is slowed.
	Pace Pace
	// Now is the clock, unix ns (time.Now).
	Now func() int64
	// Log gets what an operator must know; nil = nothing is logged.
	Log logrus.FieldLogger
}

func (o Options) withDefaults() Options {
	o.MsgTimeoutMS = orDefault(o.MsgTimeoutMS, 60_000)
	o.MaxMsgTimeoutMS = orDefault(o.MaxMsgTimeoutMS, 900_000)
	o.MaxReqTimeoutMS = orDefault(o.MaxReqTimeoutMS, 3_600_000)
	o.EphemeralDepth = orDefault(o.EphemeralDepth, 10_000)
	o.PercentileWindowMS = orDefault(o.PercentileWindowMS, 600_000)
	if o.Wake == nil {
		o.Wake = func(int64) {}
	}
	if o.Fence == nil {
		o.Fence = new(atomic.Int64)
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixNano() }
	}
	return o
}

func orDefault(v, d int64) int64 {
	if v <= 0 {
		return d
	}
	return v
}

const (
	nsPerMS = int64(time.Millisecond)
	// never is the deadline of what waits for nothing.
	never = int64(math.MaxInt64)
)

// Origin says where a channel begins.
type Origin uint8

// The origins of a channel.
const (
	// FromLatest: at the committed end; only new messages.
	FromLatest Origin = iota
	// FromBacklog: what the topic kept for its first channel.
	FromBacklog
	// FromEarliest: at the first message the log still holds.
	FromEarliest
	// FromSequence: at ChannelOptions.Sequence, no earlier than the log.
	FromSequence
)

// ChannelOptions say how a channel is created.
type ChannelOptions struct {
	Origin   Origin
	Sequence ident.Sequence // with FromSequence
	// Ordered: one message in flight, the next after the finish is on all
	// in-sync replicas. Messages come in the order of the log; only those that
	// were put with a delay come when they are due.
	Ordered bool
}
