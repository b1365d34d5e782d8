package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// acknowledges makes the acknowledgement of a store up to an offset, with a channel-state
// version.
func acknowledges(store ident.StoreID, end ident.Offset, state uint64) *ack {
	return &ack{store: store, valid: true, end: ident.Position{Offset: end, Sequence: ident.Sequence(end / 10)}, state: state}
}

func member(n ident.Node, store ident.StoreID) ident.Member {
	return ident.Member{Node: n, Store: store}
}

// TestCommitment is the rule AC-4, without a machine. n1 leads; its own
// store has synced up to 100 and version 5.
func TestCommitment(t *testing.T) {
	n2, n3, n4 := member("n2", 102), member("n3", 103), member("n4", 104)
	for name, c := range map[string]struct {
		own     *ack
		acks    map[ident.Node]*ack
		isrs    [][]ident.Member // the key's, and those of proposals that may still land
		joining []ident.Node
		end     ident.Offset
		state   uint64
		blocked bool
	}{
		"the leader alone": {
			isrs: [][]ident.Member{{}}, end: 100, state: 5,
		},
		"the slowest member decides": {
			acks: map[ident.Node]*ack{"n2": acknowledges(102, 90, 5), "n3": acknowledges(103, 70, 5)},
			isrs: [][]ident.Member{{n2, n3}}, end: 70, state: 5,
		},
		"the leader's own sync counts like any other": {
			own:  acknowledges(101, 60, 2),
			acks: map[ident.Node]*ack{"n2": acknowledges(102, 90, 5), "n3": acknowledges(103, 70, 5)},
			isrs: [][]ident.Member{{n2, n3}}, end: 60, state: 2,
		},
		"log and channel state have each their slowest member": {
			acks: map[ident.Node]*ack{"n2": acknowledges(102, 90, 3), "n3": acknowledges(103, 70, 4)},
			isrs: [][]ident.Member{{n2, n3}}, end: 70, state: 3,
		},
		"a majority is not enough": {
			acks: map[ident.Node]*ack{"n2": acknowledges(102, 100, 5), "n3": acknowledges(103, 0, 0)},
			isrs: [][]ident.Member{{n2, n3}}, end: 0, state: 0,
		},
		"a replica that is no member does not hold the others up": {
			acks: map[ident.Node]*ack{"n2": acknowledges(102, 90, 5), "n3": acknowledges(103, 10, 1)},
			isrs: [][]ident.Member{{n2}}, end: 90, state: 5,
		},
		"a member that is proposed out counts until that has landed": {
			acks: map[ident.Node]*ack{"n2": acknowledges(102, 90, 5), "n3": acknowledges(103, 10, 1)},
			isrs: [][]ident.Member{{n2, n3}, {n2}}, end: 10, state: 1,
		},
		"a newcomer counts as soon as it is proposed": {
			acks: map[ident.Node]*ack{"n2": acknowledges(102, 90, 5), "n3": acknowledges(103, 80, 4)},
			isrs: [][]ident.Member{{n2}, {n2, n3}}, end: 80, state: 4,
		},
		"every proposal that may land counts": {
			acks: map[ident.Node]*ack{"n2": acknowledges(102, 90, 5), "n3": acknowledges(103, 80, 5), "n4": acknowledges(104, 70, 5)},
			isrs: [][]ident.Member{{n2}, {n2, n3}, {n2, n4}}, end: 70, state: 5,
		},
		"a member that has not acknowledged in this epoch blocks": {
			acks: map[ident.Node]*ack{"n2": acknowledges(102, 90, 5), "n3": {store: 103}},
			isrs: [][]ident.Member{{n2, n3}}, blocked: true,
		},
		"a member that is no replica any more blocks": {
			acks: map[ident.Node]*ack{"n2": acknowledges(102, 90, 5)},
			isrs: [][]ident.Member{{n2, n3}}, blocked: true,
		},
		"another store of the member's node blocks": {
			acks: map[ident.Node]*ack{"n2": acknowledges(102, 90, 5), "n3": acknowledges(999, 100, 5)},
			isrs: [][]ident.Member{{n2, n3}}, blocked: true,
		},
		"a leader whose switch into the epoch is not durable blocks": {
			own:  &ack{end: ident.Position{Offset: 100}, state: 5},
			acks: map[ident.Node]*ack{"n2": acknowledges(102, 90, 5)},
			isrs: [][]ident.Member{{n2}}, blocked: true,
		},
		"one proposal with a silent member blocks, whatever the key says": {
			acks: map[ident.Node]*ack{"n2": acknowledges(102, 90, 5), "n3": {store: 103}},
			isrs: [][]ident.Member{{n2}, {n2, n3}}, blocked: true,
		},
		"a replica that is about to join is waited for": {
			acks: map[ident.Node]*ack{"n2": acknowledges(102, 90, 5), "n3": acknowledges(103, 85, 4)},
			isrs: [][]ident.Member{{n2}}, joining: []ident.Node{"n3"}, end: 85, state: 4,
		},
	} {
		t.Run(name, func(t *testing.T) {
			own := c.own
			if own == nil {
				own = acknowledges(101, 100, 5)
			}
			got := newCommitment(*own)
			for _, isr := range c.isrs {
				for _, x := range isr {
					got.require(x, c.acks[x.Node])
				}
			}
			for _, n := range c.joining {
				got.wait(c.acks[n])
			}
			end, state, ok := got.result()
			require.Equal(t, !c.blocked, ok)
			require.Equal(t, c.end, end.Offset)
			require.Equal(t, ident.Sequence(c.end/10), end.Sequence, "an end is one position")
			require.Equal(t, c.state, state)
		})
	}
}

// TestCommitmentHasNoOrder: an acknowledgement may come before or after the others.
func TestCommitmentHasNoOrder(t *testing.T) {
	acks := []*ack{acknowledges(102, 90, 3), acknowledges(103, 70, 4), acknowledges(104, 80, 2)}
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		c := newCommitment(*acknowledges(101, 100, 5))
		for _, i := range order {
			c.require(member("n", acks[i].store), acks[i])
		}
		end, state, ok := c.result()
		require.True(t, ok)
		require.Equal(t, ident.Offset(70), end.Offset)
		require.Equal(t, uint64(2), state)
	}
}
