package api

import (
	"context"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Recovery recovers a partition whose in-sync set is lost. Errors wrap ErrTopicNotFound, ErrInvalid and ErrUnavailable.
type Recovery interface {
	// Remains asks all replicas of a partition for their ends.
	Remains(ctx context.Context, topic string, partition int) (Remains, error)
	// Recover makes the replica on one broker the whole in-sync set. Other acknowledged messages are permanently lost.
	Recover(ctx context.Context, topic string, partition int, from ident.Node) (Remains, error)
	// Discard removes the replica on one broker that is refused because it has messages that an earlier Recover lost.
	// Its files go to the trash, and the replica is copied again.
	Discard(ctx context.Context, topic string, partition int, on ident.Node) error
}

// Remains lists the replicas of a partition that answer.
type Remains struct {
	Topic     string      `json:"topic"`
	Partition int         `json:"partition"`
	Leader    ident.Node  `json:"leader"` // "" if there is none
	Epoch     ident.Epoch `json:"epoch"`
	InSync    []Member    `json:"in_sync"`
	Replicas  []Holding   `json:"replicas"`
	// Outdated: a replica has a later epoch than the metadata, or has seen the end of its epoch. The metadata was
	// restored from a backup, and its in-sync set may be wrong.
	Outdated bool `json:"outdated,omitempty"`
	// Refused is the reason why an unclean recovery is not possible, or not needed; "": it is the only way.
	Refused string `json:"refused,omitempty"`
}

// Member is a member of the in-sync set: it had everything acknowledged.
type Member struct {
	ident.Member
	State string `json:"state"` // one of the states below
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
	Committed ident.Sequence `json:"committed_sequence"` // of committed messages, as far as the replica knows
	End       ident.Sequence `json:"end_sequence"`
}
