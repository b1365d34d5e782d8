package replica

import "errors"

// The alarms of Effects.Alarm. Each wraps the details of one event; none of them changes the log, the ISR or a
// leadership by itself.
var (
	// ErrTwoLeaders: a broker sends appends of an epoch that this machine leads. A rule of the protocol or the metadata
	// store is broken. The message is refused.
	ErrTwoLeaders = errors.New("replica: two brokers lead one epoch; the messages of the other are refused")
	// ErrOtherHistory: the leader's log conflicts with this one below the committed end. That happens after an unclean
	// recovery. The replica keeps its bytes and stays out of the ISR until an operator removes it.
	ErrOtherHistory = errors.New("replica: the leader has another log below the committed end; nothing was cut, compare the replicas before one of them is removed")
	// ErrAbandoned: the log has messages of a history that an operator has gone on without (an unclean recovery), and
	// the leader's log lacks them. The replica keeps its bytes and stays out of the ISR until an operator gives it up.
	ErrAbandoned = errors.New("replica: an unclean recovery went on without messages that are here; nothing was cut: save them (nsqctl peek --node --uncommitted), then give the replica up (nsqctl recover topic --discard)")
	// ErrBrokenChain: a batch does not carry the checksum of the one before it. The rest of its message is dropped, and
	// the leader sends it again.
	ErrBrokenChain = errors.New("replica: a batch does not join the one before it; it was not written")
	// ErrAckBeyondEnd: a follower acknowledges more than the leader has. The acknowledgement does not count.
	ErrAckBeyondEnd = errors.New("replica: acknowledgement beyond the end of the log; it does not count")
)
