package replica

import (
	"errors"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Effects is the output of Step. The loop carries the fields out in their order. Send may leave before Write is
// durable: a message that depends on durability is emitted only by the Step that processes the Synced event of that
// Token.
type Effects struct {
	Write []queue.Write
	Token uint64 // identifies Write; 0: nothing to write
	Send  []Envelope
	Read  []ReadRequest
	CAS   *CAS
	Done  []outcome.Completion
	Alarm error // one of the errors of this package, for the operator
}

// Reset empties the effects for the next Step and keeps the arrays.
func (e *Effects) Reset() {
	*e = Effects{Write: e.Write[:0], Send: e.Send[:0], Read: e.Read[:0], Done: e.Done[:0]}
}

// ReadRequest asks for whole batches from From on: about Max bytes, at least one batch. Read answers it.
type ReadRequest struct {
	Token uint64
	From  ident.Offset
	Max   int
}

// CAS requests one transaction: write State to the partition's key if the key's ModRevision is State.Revision and this
// node is still registered under its incarnation. With LeaderGone, the registration of that node must also have another
// incarnation, be absent, or state that the leadership may be taken from it. A machine has at most one CAS outstanding.
type CAS struct {
	Token          uint64
	State          metadata.PartitionState
	LeaderGone     *Peer // the leader to be replaced: Node and Incarnation
	TransferTarget *Peer // the new leader, which must be registered under this incarnation; nil: this node
}

// The alarms of Effects.Alarm, each with the details of one event. By itself, none changes the log, ISR or leadership.
var (
	// errTwoLeaders: another broker leads the epoch that this machine leads. The protocol or the metadata is broken.
	errTwoLeaders = errors.New("replica: two brokers lead one epoch; the messages of the other are refused")
	// ErrOtherHistory: the leader's log conflicts with this one below the committed end. That happens after an unclean
	// recovery. The replica keeps its bytes and stays out of the ISR until an operator removes it.
	ErrOtherHistory = errors.New("replica: the leader has another log below the committed end; nothing was cut, compare the replicas before one of them is removed")
	// ErrAbandoned: the log has messages of a history that an operator abandoned by an unclean recovery, and the
	// leader's log lacks them. The replica keeps its bytes and stays out of the ISR until an operator discards it.
	ErrAbandoned = errors.New("replica: an unclean recovery continued without messages that are here; nothing was cut: save them (nsqctl peek --node --uncommitted), then give the replica up (nsqctl recover topic --discard)")
	// errBrokenChain: a batch does not carry the checksum of the previous batch. The rest of its message is dropped.
	errBrokenChain = errors.New("replica: a batch does not join the one before it; it was not written")
	// errAckBeyondEnd: a follower acknowledges more than the leader has. The acknowledgement does not count.
	errAckBeyondEnd = errors.New("replica: acknowledgement beyond the end of the log; it does not count")
)
