package replica

import (
	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Event is one input of Step. The set is closed.
type Event interface{ event() }

type (
	// Propose carries the puts that waited for this partition, at most 1 MiB in one event.
	Propose struct {
		Puts   []Put
		TimeNS int64 // wall clock for the batches' time stamps; safety never depends on it
	}
	// Change carries a delta of the channel state, which the leader's register has already applied (CH-1).
	Change struct {
		Delta  []byte
		Ticket uint64 // 0: no Completion is expected
	}
	// Received is a message of a peer. From is the sender by the connection's handshake; From.Store is its store.
	Received struct {
		From Peer
		Msg  Message
	}
	// Synced reports that every Write up to Token is durable. An error is final: the store has stopped.
	Synced struct {
		Token uint64
		Err   error
	}
	// Read answers a ReadRequest with whole batches.
	Read struct {
		Token   uint64
		Batches []queue.Batch
		Err     error
	}
	// Meta is the partition's key as the watch or a linearizable read returned it. An older revision is ignored.
	Meta struct{ State metadata.PartitionState }
	// CASDone answers Effects.CAS. OK: State is the written value with its new Revision. Unknown: the transaction may
	// still land. Neither: a compare failed; State is the key's current value if the loop has read it, otherwise
	// Revision is 0.
	CASDone struct {
		Token       uint64
		OK, Unknown bool
		State       metadata.PartitionState
	}
	// PeerState reports whether a node answers. Dead: its process is certainly gone, so T_isr need not pass.
	PeerState struct {
		Node     ident.Node
		Up, Dead bool
	}
	// Live reports the incarnation under which a node is registered, 0 if it is not. A leader is gone when its node is
	// not registered under the incarnation that the partition's key names.
	Live struct {
		Node        ident.Node
		Incarnation ident.Incarnation
	}
	// Space reports whether a node is below its disk reserve (AC-9).
	Space struct {
		Node ident.Node
		Low  bool
	}
	// Tick is the only source of time. Time decides only how long to wait. The loop sends a Tick before an event if the
	// last one is 10 ms old.
	Tick struct{ NowMS int64 }
	// TransferLeadership asks a leader to transfer its leadership to another member of the ISR.
	TransferLeadership struct{ To ident.Node }
	// ChannelsStopped answers View.Stopping: the channels have stopped, and all their Changes have been submitted.
	ChannelsStopped struct{ Number uint64 }
	// Dedupe changes the dedupe window of the partition's topic (DW-2).
	Dedupe struct{ WindowMS int64 }
)

func (Propose) event()            {}
func (Change) event()             {}
func (Received) event()           {}
func (Synced) event()             {}
func (Read) event()               {}
func (Meta) event()               {}
func (CASDone) event()            {}
func (PeerState) event()          {}
func (Live) event()               {}
func (Space) event()              {}
func (Tick) event()               {}
func (TransferLeadership) event() {}
func (ChannelsStopped) event()    {}
func (Dedupe) event()             {}

// Put is one proposal: a message or a multi-put. Exactly one Completion carries its Ticket.
type Put struct {
	Draft  queue.Draft
	Ticket uint64
}

// Peer is one replica: a process of a node, and the node's store.
type Peer struct {
	Node        ident.Node
	Incarnation ident.Incarnation
	Store       ident.StoreID
}

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
	To        ident.StoreID // the store that it is addressed to; 0: any store of the node
	Store     ident.StoreID // the sender's store
	Prev      ident.Position
	PrevCRC   uint32
	Committed ident.Position
	Durable   ident.Position
	// StateVersion of an acknowledgement is the newest channel-state version of Epoch that is durable.
	StateVersion uint64
	LastEpoch    ident.Epoch
	Reject       bool
	// Restart of an append: Prev is the first position that the leader retains; a shorter log is emptied and begins
	// there.
	Restart bool
	// NeedSnapshot of an acknowledgement: a delta did not apply, because the previous one is missing.
	NeedSnapshot bool
	// ClockMS of an append is the leader's clock of the partition (queue.Clock) in ms; 0: the log has had no identity.
	ClockMS int64
	// Forgotten of an append with Restart is the clock of the newest identity that the leader has forgotten; 0: none.
	Forgotten queue.Clock
	// Abandoned of an append is the value in the leader's copy of the key (CU-9), which the follower may not have seen
	// yet.
	Abandoned ident.Epoch
	Epochs    []commitlog.EpochEnd
	State     queue.StateVersion // one version of the channel state
	Batches   []queue.Batch
}

// Envelope is a message to one node. The loop keeps the order of the messages to a node; any of them may be lost.
type Envelope struct {
	To   ident.Node
	Msg  Message
	Bulk bool // catch-up traffic: live appends take precedence
}
