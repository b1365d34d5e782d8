package replica

import (
	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Kind numbers the messages between replicas. The numbers are on the wire.
type Kind uint8

// The messages between replicas.
const (
	// MsgAppend, leader to follower: the batches after Prev, perhaps none, and the committed end.
	MsgAppend Kind = 1
	// MsgAppendAck, follower to leader: the end that is durable and compared with the leader's log in this epoch, and
	// the channel-state version that is durable. With Reject: the epoch table of a follower that could not append.
	MsgAppendAck Kind = 2
	// MsgChannelState, leader to follower: one channel-state version, a delta or snapshot, and the committed end.
	MsgChannelState Kind = 3
	// MsgProbe, candidate to ISR member: asks for the end of the member's log.
	MsgProbe Kind = 4
	// MsgProbeReply, ISR member to candidate: the promised epoch, the epoch of the newest batch, and the durable end.
	MsgProbeReply Kind = 5
)

// Message is one message between two replicas. On the wire, the loop adds the partition and the sender's incarnation.
type Message struct {
	Kind      Kind
	Epoch     ident.Epoch
	To        ident.StoreID // the store it is addressed to; 0: any store of the node
	Store     ident.StoreID // the sender's store
	Prev      ident.Position
	PrevCRC   uint32
	Committed ident.Position
	Durable   ident.Position
	// StateVersion of an acknowledgement is the newest channel-state version of Epoch that is durable.
	StateVersion uint64
	LastEpoch    ident.Epoch
	Reject       bool
	// Restart of an append: Prev is the first position that the leader retains; a shorter log begins afresh there.
	Restart bool
	// NeedSnapshot of an acknowledgement: a delta did not apply, because the one before it is missing.
	NeedSnapshot bool
	// ClockMS of an append is the leader's clock of the partition (queue.Clock) in ms; 0: the log has had no identity.
	ClockMS int64
	// Forgotten of an append with Restart is the clock of the newest identity that the leader has forgotten; 0: none.
	Forgotten queue.Clock
	// Abandoned of an append is that of the leader's key (CU-9): the follower may not have seen that key yet.
	Abandoned ident.Epoch
	Epochs    []commitlog.EpochEnd
	State     queue.StateVersion // one version of the channel state
	Batches   []queue.Batch
}

// Envelope is a message to one node. The loop keeps the order of the messages to a node; any of them may be lost.
type Envelope struct {
	To   ident.Node
	Msg  Message
	Bulk bool // catch-up: live appends go first
}
