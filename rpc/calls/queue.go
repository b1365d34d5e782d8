package calls

import "github.com/lockstepmq/lockstep/internal/ident"

// The calls about channels, each carried out by the leader of the partition.
const (
	// ChangeQueue carries an operation out on one partition.
	ChangeQueue Method[QueueOp, None] = "queue.do"
	// ChangeQueues carries it out on several.
	ChangeQueues Method[QueueOps, QueuesDone] = "queue.do.many"
	// Deferred lists or finishes delayed messages of a channel.
	Deferred Method[DeferredRequest, DeferredReply] = "queue.deferred"
	// Seek moves a channel in partitions that the broker leads, or counts what the move would do.
	Seek Method[SeekRequest, SeekReply] = "queue.seek"
	// FinishElsewhere finishes messages of a channel without consumers.
	FinishElsewhere Method[FinishRequest, FinishReply] = "queue.finish"
	// Positions lists how far the channels of a partition are.
	Positions Method[PositionsRequest, PositionsReply] = "queue.positions"
	// Settle finishes, requeues or touches deliveries of a channel by their receipts.
	Settle Method[SettleRequest, SettleReply] = "queue.settle"
)

// The verbs of a QueueOp.
const (
	ChannelCreate  = "channel.create"
	ChannelDelete  = "channel.delete"
	ChannelEmpty   = "channel.empty"
	ChannelPause   = "channel.pause"
	ChannelUnpause = "channel.unpause"
	ChannelSeek    = "channel.seek"
	ChannelOrder   = "channel.order"
	ChannelPolicy  = "channel.policy"
	TopicPause     = "topic.pause"
	TopicUnpause   = "topic.unpause"
	TopicEmpty     = "topic.empty"
)

// QueueOp is one operation on the channels of one partition, idempotent.
// On the wire, by place: append only.
type QueueOp struct {
	Topic   uint64
	Number  uint16
	Verb    string
	Channel string
	ID      uint64 // of the channel's key; 0: an ephemeral channel, or the caller does not know it
	From    string
	First   bool
	Ordered bool
	Paused  bool
	Idle    bool // seek: only if the channel has no consumers
	// Revision is that of the channel's key with the policy, or an earlier one than the key
	// has by now.
	Revision int64
}

// Partition names the partition.
func (o QueueOp) Partition() ident.Partition {
	return partition(o.Topic, o.Number)
}

// QueueOps is one operation on several partitions of its topic, which the broker that is
// asked leads.
// On the wire, by place: append only.
type QueueOps struct {
	Op      QueueOp
	Numbers []uint16
}

// QueuesDone names the partitions where the operation is done.
// On the wire, by place: append only.
type QueuesDone struct{ Done []uint16 }

// SeekRequest moves a channel (Op, verb ChannelSeek) in several partitions of its topic. With DryRun it
// only counts.
// On the wire, by place: append only.
type SeekRequest struct {
	Op      QueueOp
	Numbers []uint16
	DryRun  bool
}

// SeekReply has a move for each partition where the channel was moved, stays, or may have been moved. A
// partition without one was not changed. An error about a single partition is the error of the call.
// On the wire, by place: append only.
type SeekReply struct{ Moves []SeekMove }

// SeekMove is the effect in one partition (nsqd.SeekEffect).
// On the wire, by place: append only.
type SeekMove struct {
	Number         uint16
	From, To       uint64
	Skips, Repeats uint64
	Stays          bool // QueueOp.Idle, and the channel has consumers
	Unsure         bool // the leadership ended; the next leader has to be asked
}

// DeferredRequest asks for at most Max delayed messages of a channel, or to finish those
// in Cancel.
// On the wire, by place: append only.
type DeferredRequest struct {
	Topic   uint64
	Number  uint16
	Channel string
	Max     int
	Cancel  []uint64
}

// Partition names the partition.
func (r DeferredRequest) Partition() ident.Partition {
	return partition(r.Topic, r.Number)
}

// DeferredReply is the answer.
// On the wire, by place: append only.
type DeferredReply struct {
	Listed    []DeferredMessage
	Cancelled int
}

// DeferredMessage is one delayed message.
// On the wire, by place: append only.
type DeferredMessage struct {
	Sequence   uint64
	DeadlineNS int64
	Attempts   uint16
}

// FinishRequest names messages of a channel that are finished elsewhere. Spans is pairs: the first sequence
// of a span, and the one behind it.
// On the wire, by place: append only.
type FinishRequest struct {
	Topic   uint64
	Number  uint16
	Channel string
	Spans   []uint64
}

// Partition names the partition.
func (r FinishRequest) Partition() ident.Partition {
	return partition(r.Topic, r.Number)
}

// FinishReply is the effect (cursor.Elsewhere).
// On the wire, by place: append only.
type FinishReply struct {
	Finished, Kept uint64
	Stays          bool
}

// PositionsRequest asks for the positions of the durable channels of a partition.
// On the wire, by place: append only.
type PositionsRequest struct {
	Topic  uint64
	Number uint16
}

// Partition names the partition.
func (r PositionsRequest) Partition() ident.Partition {
	return partition(r.Topic, r.Number)
}

// PositionsReply is the answer.
// On the wire, by place: append only.
type PositionsReply struct{ Channels []ChannelPosition }

// ChannelPosition is how far one channel is. Settled is pairs: the first sequence of a span, and the
// one behind it.
// On the wire, by place: append only.
type ChannelPosition struct {
	Channel   string
	Confirmed uint64
	Settled   []uint64
	Deferred  []DeferredMessage
	Consumers int
}

// SettleRequest carries a verb (api.Verb) out on deliveries of a channel.
// On the wire, by place: append only.
type SettleRequest struct {
	Topic    uint64
	Number   uint16
	Channel  string
	Verb     string
	DelayMS  int64 // of a requeue
	Receipts []Receipt
}

// Partition names the partition.
func (r SettleRequest) Partition() ident.Partition {
	return partition(r.Topic, r.Number)
}

// Receipt names one delivery.
// On the wire, by place: append only.
type Receipt struct {
	Sequence uint64
	Epoch    uint64
	Delivery uint64 // its number
}

// SettleReply names the receipts that were refused; the others are done.
// On the wire, by place: append only.
type SettleReply struct{ Refused []SettleRefusal }

// SettleRefusal is the reason why a receipt was refused.
// On the wire, by place: append only.
type SettleRefusal struct {
	Index int  // of the receipt in the request
	Owner bool // the message is in flight again, by another delivery
	Again bool // the delivery is of an earlier leader, and its broker may still report it here
}
