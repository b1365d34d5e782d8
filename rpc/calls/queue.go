package calls

import (
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// The calls about channels, each carried out by the leader of the partition.
const (
	// ChangeQueue carries out an operation on one partition.
	ChangeQueue Method[QueueOp, None] = "queue.do"
	// ChangeQueues carries out an operation on several partitions.
	ChangeQueues Method[QueueOps, QueuesDone] = "queue.do.many"
	// Deferred lists or finishes delayed messages of a channel.
	Deferred Method[DeferredRequest, DeferredReply] = "queue.deferred"
	// Seek moves a channel in partitions that the broker leads, or counts what the move would do.
	Seek Method[SeekRequest, SeekReply] = "queue.seek"
	// FinishElsewhere finishes messages of a channel without consumers.
	FinishElsewhere Method[FinishRequest, FinishReply] = "queue.finish"
	// Positions lists the positions of the durable channels of a partition.
	Positions Method[PositionsRequest, JSON[[]api.ChannelPosition]] = "queue.positions"
	// Settle finishes, requeues or touches deliveries of a channel by their receipts.
	Settle Method[SettleRequest, SettleReply] = "queue.settle"
	// Trace returns the state of one message at the leader of its partition: the part of an api.MessageTrace that the
	// leader has.
	Trace Method[TraceRequest, JSON[api.MessageTrace]] = "queue.trace"
)

// The verbs of a QueueOp.
const (
	ChannelCreate  = "channel.create"
	ChannelDelete  = "channel.delete"
	ChannelEmpty   = "channel.empty"
	ChannelPause   = "channel.pause"
	ChannelUnpause = "channel.unpause"
	ChannelOrder   = "channel.order"
	ChannelPolicy  = "channel.policy"
	TopicPause     = "topic.pause"
	TopicUnpause   = "topic.unpause"
	TopicEmpty     = "topic.empty"
)

// The requests and answers. On the wire, by position: append only.
type (
	// QueueOp is one operation on the channels of one partition, idempotent.
	QueueOp struct {
		ident.Partition
		Verb    string
		Channel string
		ID      uint64 // id in the channel's key; 0: an ephemeral channel, or unknown to the caller
		From    string
		First   bool
		Ordered bool
		Paused  bool
		Idle    bool // seek: only if the channel has no consumers
		// Revision is the revision of the channel's key with the policy; the key may have a later revision by now.
		Revision int64
	}
	// QueueOps is one operation on several partitions of its topic, all led by the callee.
	QueueOps struct {
		Op      QueueOp
		Numbers []uint16
	}
	// QueuesDone names the partitions where the operation is done.
	QueuesDone struct{ Done []uint16 }
	// SeekRequest moves a channel (Op, without a verb) in several partitions of its topic. With DryRun it only counts.
	SeekRequest struct {
		Op      QueueOp
		Numbers []uint16
		DryRun  bool
	}
	// SeekReply has a move for each partition in which the channel was moved, stays, or may have been moved. A
	// partition without a move was not changed. An error about a single partition is the error of the call.
	SeekReply struct{ Moves []SeekMove }
	// SeekMove is the effect in one partition (nsqd.SeekEffect).
	SeekMove struct {
		Number         uint16
		From, To       ident.Sequence
		Skips, Repeats uint64
		Stays          bool // with QueueOp.Idle: the channel has consumers
		Unsure         bool // the leadership ended, so the caller must ask the next leader
	}
	// DeferredRequest requests at most Max delayed messages of a channel, or the finish of those in Cancel.
	DeferredRequest struct {
		ident.Partition
		Channel string
		Max     int
		Cancel  []ident.Sequence
	}
	// DeferredReply is the answer to a DeferredRequest.
	DeferredReply struct {
		Listed    []DeferredMessage
		Cancelled int
	}
	// DeferredMessage is one delayed message.
	DeferredMessage struct {
		Sequence   ident.Sequence
		DeadlineNS int64
		Attempts   uint16
	}
	// FinishRequest names messages of a channel that are finished elsewhere. Spans has pairs: the first sequence
	// of a span, and the first sequence after it.
	FinishRequest struct {
		ident.Partition
		Channel string
		Spans   []uint64
	}
	// FinishReply is the effect of a FinishRequest (cursor.Elsewhere).
	FinishReply struct {
		Finished, Kept uint64
		Stays          bool
	}
	// PositionsRequest names the partition whose channels are listed.
	PositionsRequest struct{ ident.Partition }
	// TraceRequest names the message to trace.
	TraceRequest struct {
		ident.Partition
		Sequence ident.Sequence
	}
	// SettleRequest applies a verb (api.Verb) to deliveries of a channel.
	SettleRequest struct {
		ident.Partition
		Channel  string
		Verb     string
		DelayMS  int64 // of a requeue
		Receipts []Receipt
	}
	// Receipt names one delivery.
	Receipt struct {
		Sequence ident.Sequence
		Epoch    ident.Epoch
		Delivery uint64 // its number
	}
	// SettleReply names the receipts that were refused; the others are done.
	SettleReply struct{ Refused []SettleRefusal }
	// SettleRefusal is the reason why a receipt was refused.
	SettleRefusal struct {
		Index int  // of the receipt in the request
		Owner bool // the message is in flight again, by another delivery
		Again bool // an earlier leader made the delivery, and its broker may still report it here
	}
)
