package api

import (
	"context"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Recovery recovers a partition whose in-sync set is lost. Errors wrap ErrTopicNotFound, ErrInvalid and ErrUnavailable.
type Recovery interface {
	// Remains asks all replicas of a partition for their ends.
	Remains(ctx context.Context, topic string, partition int) (Remains, error)
	// Recover makes the replica on one broker the whole in-sync set. Acknowledged messages that are not on it are lost
	// permanently.
	Recover(ctx context.Context, topic string, partition int, from ident.Node) (Remains, error)
	// Discard removes the replica on one broker that is refused because it holds messages that an earlier Recover lost:
	// its files go to the trash, and the replica is copied again.
	Discard(ctx context.Context, topic string, partition int, on ident.Node) error
}

// Remains lists the replicas of a partition that answer, for the decision whether to continue without its in-sync set.
type Remains struct {
	Topic     string      `json:"topic"`
	Partition int         `json:"partition"`
	Leader    ident.Node  `json:"leader"` // "" if there is none
	Epoch     ident.Epoch `json:"epoch"`
	InSync    []Member    `json:"in_sync"`
	Replicas  []Holding   `json:"replicas"`
	// Outdated: the metadata is older than a replica, which has a later epoch, or the metadata names a leader in an
	// epoch that a replica has seen end. The metadata was restored from a backup, and its in-sync set may be untrue.
	Outdated bool `json:"outdated,omitempty"`
	// Refused is the reason why an unclean recovery is not possible, or not needed; "" = it is the only way.
	Refused string `json:"refused,omitempty"`
}

// Member is one of the in-sync set: everything acknowledged was on each of them.
type Member struct {
	ident.Member
	// State is one of the states below.
	State string `json:"state"`
}

// The states of a Member.
const (
	MemberHere     = "here"
	MemberReplaced = "runs with another disk"
	MemberSilent   = "does not answer"
)

// Holding is the state on disk of a replica that answers.
type Holding struct {
	Node      ident.Node     `json:"node"`
	Store     ident.StoreID  `json:"store"`
	Epoch     ident.Epoch    `json:"epoch"`
	Committed ident.Sequence `json:"committed_sequence"` // messages that the replica has as committed: at least these were
	End       ident.Sequence `json:"end_sequence"`       // messages there
}
