package replica

import "github.com/lockstepmq/lockstep/internal/ident"

// ack is what one replica holds durably in one epoch.
type ack struct {
	store ident.StoreID  // the store that acknowledged; 0 before its first message
	valid bool           // it acknowledged in this epoch; otherwise end and state are meaningless
	end   ident.Position // durable, and equal to the leader's log up to there
	state uint64         // channel-state version of this epoch
}

// commitment computes the committed end and channel state from the acknowledgements at one moment (AC-4): the part that
// the leader and every member of the maximal ISR hold durably.
//
// A commitment has no memory. The leader begins one with its own ack, requires each member of each ISR that counts, and
// waits for the replicas that are about to join. Computing it for each acknowledgement takes nanoseconds.
//
// hashicorp/raft's commitment takes the median of its voters, because any majority may elect the next leader. Here
// every member of the ISR may become leader alone, so it is the minimum.
type commitment struct {
	end     ident.Position
	state   uint64
	blocked bool // some member has no valid acknowledgement
}

// newCommitment begins with the leader's own ack: its durable log and channel state.
func newCommitment(own ack) commitment {
	return commitment{end: own.end, state: own.state, blocked: !own.valid}
}

// require lowers the result to the ack of a member. If the ack is nil, the node is no longer a replica. If the ack is
// of another store, the node came back without the bytes that it had acknowledged, and is a different member.
func (c *commitment) require(x ident.Member, a *ack) {
	if a == nil || !a.valid || a.store != x.Store {
		c.blocked = true
		return
	}
	c.wait(a)
}

// wait lowers the result to the ack of a replica that keeps up and is not a member yet (CU-5). Otherwise a replica with
// a higher latency than the members would trail the committed end for as long as there are puts, and could never join.
func (c *commitment) wait(a *ack) {
	c.end = least(c.end, a.end)
	c.state = min(c.state, a.state)
}

// result returns the committed end and channel-state version; false if a required member has not acknowledged.
func (c *commitment) result() (end ident.Position, state uint64, ok bool) {
	if c.blocked {
		return ident.Position{}, 0, false
	}
	return c.end, c.state, true
}
