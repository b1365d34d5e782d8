package replica

import (
	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Event is what happened; the set is closed.
type Event interface{ event() }

type (
	// Propose hands in puts, drained by the loop, at most 1 MiB in one event.
	Propose struct {
		Puts   []Put
		TimeNS int64 // wall clock for the batches' time stamps; safety never depends on it
	}
	// Change hands in a delta of the channel state, already applied to the
	// leader's Register. It has no place in the offset space (RB-12).
	Change struct {
		Delta  []byte
		Ticket uint64 // 0 = no Completion wanted
	}
	// Received is a message of a peer. From is what the connection's handshake
	// said; the store is the sender's for this partition.
	Received struct {
		From Peer
		Msg  Message
	}
	// Synced says that every Write up to Token is durable. An error is final:
	// the store has stopped.
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
	// Meta is the partition's key as the watch or a linearizable read saw it.
	// Older revisions than the known one are ignored.
	Meta struct{ State meta.PartitionState }
	// CASDone answers Effects.CAS. OK: State is what was put, with its new
	// Revision. Neither OK nor Unknown: a compare failed; State is what is there
	// if the loop knows it (Revision 0 otherwise). Unknown: it may still land.
	CASDone struct {
		Token       uint64
		OK, Unknown bool
		State       meta.PartitionState
	}
	// PeerState says whether a node answers. Dead: its process is known to be
	// gone (connection closed and redial refused), so T_isr need not pass.
	PeerState struct {
		Node     ident.Node
		Up, Dead bool
	}
	// Live tells the present incarnation of a node, 0 = no registration. The
	// leader named by the key is gone when its incarnation is not this one.
	// HandingOver: the node is stopping and wants its leaderships taken.
	Live struct {
		Node        ident.Node
		Incarnation ident.Incarnation
		HandingOver bool
	}
	// Tick is the only time there is; it decides nothing but waiting. The loop
	// sends one before other events when the last is more than 10 ms old.
	Tick struct{ NowMS int64 }
	// HandOver asks a leader to give its leadership to another ISR member.
	HandOver struct{ To ident.Node }
)

func (Propose) event()   {}
func (Change) event()    {}
func (Received) event()  {}
func (Synced) event()    {}
func (Read) event()      {}
func (Meta) event()      {}
func (CASDone) event()   {}
func (PeerState) event() {}
func (Live) event()      {}
func (Tick) event()      {}
func (HandOver) event()  {}

// Put is one proposal. Ticket comes back in exactly one Completion.
type Put struct {
	Draft  queue.Draft
	Ticket uint64
}

// Peer is a replica as it presents itself.
type Peer struct {
	Node        ident.Node
	Incarnation ident.Incarnation
	Store       ident.StoreID
}

// Kind numbers the messages between replicas. The numbers are on the wire.
type Kind uint8

// The messages between replicas.
const (
	// MsgAppend: leader → follower. Batches after Prev (maybe none), the
	// committed end, and optionally a Confirm.
	MsgAppend Kind = 1
	// MsgAppendAck: follower → leader. Durable end verified in this epoch and
	// the confirm version durable; or Reject with the follower's epoch table.
	MsgAppendAck Kind = 2
	// MsgConfirm: leader → follower. A channel-state delta or snapshot, and the
	// committed end.
	MsgConfirm Kind = 3
	// MsgProbe: candidate → ISR member. "What do you hold?"
	MsgProbe Kind = 4
	// MsgProbeReply: its answer: Epoch promised, LastEpoch and Durable end.
	MsgProbeReply Kind = 5
)

// Message is what replicas of one partition say to each other. The loop adds
// the partition and the sender's incarnation on the wire.
type Message struct {
	Kind      Kind
	Epoch     ident.Epoch
	To        ident.StoreID // the store it is for; 0 = whichever the node holds
	Store     ident.StoreID // the sender's store
	Prev      ident.Position
	PrevCRC   uint32
	Committed ident.Position
	Durable   ident.Position
	ConfirmN  uint64 // ack: the highest confirm of Epoch held durably
	LastEpoch ident.Epoch
	Reject    bool
	Restart   bool // append: begin the log afresh at Prev, what was before is retained nowhere
	NeedFull  bool // ack: a confirm was missing, send a snapshot
	Epochs    []commitlog.EpochEnd
	Confirm   queue.Confirm
	Batches   []queue.Batch
}

// Envelope is a message to one node. Order per node is kept; it may be lost.
type Envelope struct {
	To   ident.Node
	Msg  Message
	Bulk bool // catch-up: yields to live appends
}

// ReadRequest asks for whole batches from From on, about Max bytes, at least
// one batch. Answered by Read with the same Token.
type ReadRequest struct {
	Token uint64
	From  ident.Offset
	Max   int
}

// CAS asks for one transaction on the partition's key: put State where the
// key's ModRevision is State.Revision and this node's own registration still
// has its incarnation. With LeaderGone set, also only if live/<node> does not
// have that incarnation or says it hands over. At most one is outstanding.
type CAS struct {
	Token      uint64
	State      meta.PartitionState
	LeaderGone *Peer // Node and Incarnation of the leader to be replaced
	Heir       *Peer // Node and Incarnation that must be alive to take over; nil = self
}

// Completion answers one Ticket.
type Completion struct {
	Ticket  uint64
	First   ident.Sequence // valid with Committed and Duplicate
	Outcome Outcome
}

// Outcome is what became of a put.
type Outcome uint8

// The outcomes of a put.
const (
	// Committed: durable on all of the maximal ISR.
	Committed Outcome = iota + 1
	// Duplicate: the same request id was committed before; First is its place.
	Duplicate
	// NotLeader: nothing was written here; ask the present leader.
	NotLeader
	// NotEnoughReplicas: nothing was written; the ISR is below its minimum.
	NotEnoughReplicas
	// RolledBack: was written and has been taken back for good.
	RolledBack
	// InDoubt: was written, and may or may not be committed by a later leader.
	InDoubt
	// TopicFull: nothing was written, the loop refused it: a limit of the topic is
	// reached. Machines never say so.
	TopicFull
	// DiskFull: nothing was written, the loop refused it: a member of the ISR is
	// below its disk reserve. Machines never say so.
	DiskFull
)

// Role is what the machine does at present.
type Role uint8

// The roles.
const (
	// Idle: not a replica, or nothing is known yet.
	Idle Role = iota
	// Follower takes appends.
	Follower
	// Candidate found the leader gone and asks around before it stands.
	Candidate
	// Electing leads an epoch whose marker is not committed: serves nothing.
	Electing
	// Leader takes puts and delivers.
	Leader
	// Stopped: the store failed; nothing is acknowledged any more.
	Stopped
)

// String names the role as logs and /v1/cluster show it.
func (r Role) String() string {
	return [...]string{"idle", "follower", "candidate", "electing", "leader", "stopped"}[r]
}

// Effects of one Step; the loop carries them out in field order. Send may leave
// before Write is durable: what needs durability (acks, the first message of an
// epoch) Step emits only on the Synced event of its Token.
type Effects struct {
	Write     []queue.Write
	Token     uint64 // of Write; 0 = nothing to write
	Send      []Envelope
	Read      []ReadRequest
	CAS       *CAS
	Done      []Completion
	Truncated bool  // the log was cut: memory tails and caches above End must go
	Alarm     error // something that must not happen, or an operator must know
}

// Reset empties the effects for the next Step and keeps the arrays.
func (e *Effects) Reset() {
	*e = Effects{Write: e.Write[:0], Send: e.Send[:0], Read: e.Read[:0], Done: e.Done[:0]}
}

// Index is the commit log as the machine needs it: the machine keeps it in step
// with its own end. No method does I/O that may fail; lookups of old records
// may read a page.
type Index interface {
	Append(r ...commitlog.Record)
	Truncate(end ident.Offset)
	// Restart empties the index; the next record begins at p.
	Restart(p ident.Position)
	// AtOffset finds the record whose batch covers byte o.
	AtOffset(o ident.Offset) (commitlog.Record, bool)
	// Start is the first position still held (retention moves it).
	Start() ident.Position
}

// Register is the channel state of the partition (nsqd). Calls come from Step
// alone, in the order of the versions.
type Register interface {
	// Snapshot encodes the whole present state.
	Snapshot() []byte
	// Apply applies a delta; only forward, except for a replicated seek.
	Apply(delta []byte)
	// Replace takes a snapshot for the present state.
	Replace(full []byte)
	// Unlead ends service here, if there is any: no change is accepted from now on.
	Unlead()
}

// Options of a machine: times in milliseconds, see DESIGN.md 4.7.
type Options struct {
	Self        Peer
	Partition   ident.Partition
	Seed        uint64 // staggers elections; the only source of variety
	ISRMS       int64  // T_isr 1000: proposed out
	HoldMS      int64  // T_hold 3000
	WriteMS     int64  // write deadline 3000
	GraceMS     int64  // 2000
	RetryMS     int64  // 200: an unanswered append is sent again
	ElectionMS  int64  // 50: wait for probe replies; also the stagger
	WindowBytes int    // 8 MiB in flight per follower
	GroupBytes  int    // 1 MiB in one append
	TailBytes   int    // 16 MiB of recent batches kept for followers
	HeldBytes   int    // 64 MiB of puts held without an offset; above: refused
	Epochs      int    // of its log that a replica tells another; 0 = 256
	Check       bool   // verify the invariants after every Step (on in all tests)
	// Break switches one rule off, by name. Tests only: see rules.go.
	Break string
}
