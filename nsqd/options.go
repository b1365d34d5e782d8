package nsqd

import (
	"cmp"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Errors of this package, besides outcome.ErrNotInFlight, outcome.ErrNotOwner and outcome.ErrChannelNotFound.
var (
	// ErrNotLeader means that this broker does not lead the partition. A change that was waiting may still take effect
	// at the next leader.
	ErrNotLeader = errors.New("nsqd: not the leader of this partition")
	// ErrDeleted means that the channel was deleted.
	ErrDeleted = errors.New("nsqd: channel is deleted")
	// ErrNotReplicated means that a change did not reach all in-sync replicas.
	ErrNotReplicated = errors.New("nsqd: change was not replicated")
	// errAttached means that the subscriber is already attached, or was detached.
	errAttached = errors.New("nsqd: subscriber is attached already")
)

// Log is the part of a partition's log that its channels read.
type Log interface {
	// Committed is the committed end. It does no I/O.
	Committed() ident.Position
	// Start is the first position that the log still has. It does no I/O.
	Start() ident.Position
	// Read appends at most max committed messages from sequence `from` on to dst, at least one if there is one. It may
	// read a disk, and skips messages only if retention has removed them.
	Read(from ident.Sequence, max int, dst []queue.Message) ([]queue.Message, error)
	// ReadRelocated returns a message of the committed relocation batch that begins at an offset. False: the batch or
	// the message does not exist. It may read a disk.
	ReadRelocated(at ident.Offset, seq ident.Sequence) (queue.Message, bool, error)
}

// Replicator replicates changes of the channel state.
type Replicator interface {
	// Submit enqueues a change, in the order of the calls. It completes the change exactly once, perhaps before Submit
	// returns.
	Submit(c Change)
}

// Options of a partition's channels. Zero values mean the defaults.
type Options struct {
	MsgTimeoutMS    int64 // 60,000: for subscribers that set no timeout
	MaxMsgTimeoutMS int64 // 900,000: TOUCH cannot extend a delivery beyond it
	MaxReqTimeoutMS int64 // 3,600,000: longer requeue delays are clamped to it
	// EphemeralDepth bounds the undelivered messages of an ephemeral channel (10,000, NSQ's --mem-queue-size).
	EphemeralDepth int64
	// Percentiles of the end-to-end latency to measure, 0–1.
	Percentiles []float64
	// PercentileWindowMS is the window of the percentiles (600,000).
	PercentileWindowMS int64
	// Policy returns the configured policy of the channel that currently has a name, or the zero value. A channel with
	// another id delivers nothing before SetPolicy is called. Policy must not block. nil: channels have no policies.
	Policy func(channel string) Policy
	// Wake is called when Expire, Flush or DeadPending has work to do, with the due time in unix ns (0: at once). It is
	// called under locks: it must neither block nor call back. nil: the caller polls.
	Wake func(atNS int64)
	// Fence is a time in unix ns until which all partitions that share it may deliver, even if the fence of
	// Partition.Extend is earlier. May be nil.
	Fence *atomic.Int64
	// Pace slows channels that are far behind. May be nil.
	Pace pacer
	// Now is the clock, unix ns (time.Now).
	Now func() int64
	// Log receives faults for the operator. May be nil.
	Log logrus.FieldLogger
}

func (o Options) withDefaults() Options {
	o.MsgTimeoutMS = cmp.Or(max(o.MsgTimeoutMS, 0), 60_000)
	o.MaxMsgTimeoutMS = cmp.Or(max(o.MaxMsgTimeoutMS, 0), 900_000)
	o.MaxReqTimeoutMS = cmp.Or(max(o.MaxReqTimeoutMS, 0), 3_600_000)
	o.EphemeralDepth = cmp.Or(max(o.EphemeralDepth, 0), 10_000)
	o.PercentileWindowMS = cmp.Or(max(o.PercentileWindowMS, 0), 600_000)
	if o.Wake == nil {
		o.Wake = func(int64) {}
	}
	o.Fence = cmp.Or(o.Fence, new(atomic.Int64))
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().UnixNano() }
	}
	return o
}

const (
	nsPerMS = int64(time.Millisecond)
	// never stands for a deadline that does not exist.
	never = int64(math.MaxInt64)
)

// origin is where a channel begins.
type origin uint8

// The origins of a channel.
const (
	// FromLatest is the committed end: the channel gets new messages only.
	FromLatest origin = iota
	// FromBacklog is the first message that the topic has retained for its first channel.
	FromBacklog
	// FromEarliest is the first message that the log still has.
	FromEarliest
	// FromSequence is ChannelOptions.Sequence, or the start of the log if that is later.
	FromSequence
)

// ChannelOptions describe a new channel.
type ChannelOptions struct {
	Origin   origin
	Sequence ident.Sequence // with FromSequence
	// ID distinguishes the channel from earlier and later ones of the same name. 0: ephemeral.
	ID uint64
	// Ordered channels have one message in flight, and deliver the next one when its finish is on all in-sync replicas.
	// A message that was published with a delay is delivered when it is due. No message overtakes a failed one.
	Ordered bool
}

// CheckStart parses a start position before any leader is called. It refuses a time in the future. Errors wrap
// outcome.ErrInvalid.
func CheckStart(from string) (api.Place, error) {
	p, err := api.ParsePlace(from)
	if err == nil {
		err = p.ToCome(time.Now())
	}
	return p, err
}

// StartOptions returns the options of a channel that begins at the position from in one partition, or at the end if
// from is beyond it. If from is "", the first channel of a topic begins with the messages that the topic has retained,
// and any other channel at the end.
func StartOptions(from string, first bool, index *commitlog.Log) (o ChannelOptions, err error) {
	p, err := api.ParsePlace(from)
	if err != nil {
		return o, err
	}
	switch p.Kind {
	case api.PlaceByRule:
		if first {
			o.Origin = FromBacklog
		}
	case api.PlaceEarliest:
		o.Origin = FromEarliest
	case api.PlaceSequence:
		o.Origin, o.Sequence = FromSequence, p.Sequence
	case api.PlaceTime:
		if r, ok := index.AtTime(p.Time.UnixMilli()); ok {
			o.Origin, o.Sequence = FromSequence, r.First
		}
	}
	return o, nil
}
