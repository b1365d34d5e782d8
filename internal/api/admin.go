package api

import (
	"cmp"
	"context"
	"fmt"
	"reflect"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/nsqd/filter"
)

// Admin carries out administrative operations, each the same on every broker. It returns after the change is
// replicated. Errors wrap ErrTopicNotFound, ErrChannelNotFound, ErrBrokerNotFound, ErrInvalid, ErrConflict,
// ErrUnavailable.
type Admin interface {
	Do(ctx context.Context, op Operation) error
}

// Operation is one administrative operation: a value of one of the types below. It is idempotent. Its fields Topic and
// Channel, if it has them, are its target.
type Operation any

// Target returns the topic and the channel of an operation; "": it has none.
func Target(op Operation) (topic, channel string) {
	field := func(name string) string {
		if f := reflect.ValueOf(op).FieldByName(name); f.IsValid() {
			return f.String()
		}
		return ""
	}
	return field("Topic"), field("Channel")
}

// Validate returns the first argument that is missing or wrong, regardless of the state of the cluster. Values that depend
// on the cluster, or on its defaults, are checked by the broker.
func Validate(op Operation) error {
	require := func(given bool, names string) error {
		if given {
			return nil
		}
		return fmt.Errorf("%w: name %s", outcome.ErrInvalid, names)
	}
	switch o := op.(type) {
	case SetTopic:
		return require(o != SetTopic{Topic: o.Topic}, "durability, a limit, or more of them")
	case SetReplication:
		return require(o != SetReplication{Topic: o.Topic}, "replication_factor, min_in_sync, or both")
	case SetPartitions:
		return require(o.Partitions != 0, "partitions")
	case SeekChannel:
		if o.To == "" {
			return fmt.Errorf("%w: to must be earliest, latest, a time or a sequence", outcome.ErrInvalid)
		}
	case CreateChannel:
		return validFilter(o.Filter)
	case SetPolicy:
		if err := require(o.Policy != option.Change[option.Policy]{}, "max_attempts, dead_letter_topic, retry_backoff, filter, or more of them"); err != nil {
			return err
		}
		return validFilter(o.Policy.Values.Filter)
	}
	return nil
}

func validFilter(text string) error {
	if _, err := filter.Parse(text); err != nil {
		return fmt.Errorf("%w: %w", outcome.ErrInvalid, err)
	}
	return nil
}

// CreateTopic creates a topic. 0 and nil select the broker's default. If the topic exists with settings that differ
// from the given ones, the error is ErrConflict.
type CreateTopic struct {
	Topic                                    string
	Partitions, ReplicationFactor, MinInSync int
	Ordered                                  *bool
	Durability                               string // "sync", "replicated"; "": the default
	Options                                  option.Change[option.Topic]
}

// SetTopic changes the options and the durability of a topic. SetReplication and SetPartitions change the rest.
type SetTopic struct {
	Topic      string
	Durability string // "sync", "replicated"; "": unchanged
	Options    option.Change[option.Topic]
}

// DeleteTopic deletes a topic with all its messages. With a grace (--delete-grace) it can be undeleted for that time,
// unless Now is set. BrokerByBroker says that the client asks all brokers one after the other, as nsqadmin does. In
// that case a topic that a put has recreated since the first request is not deleted, and a broker that is tombstoned
// for the topic deletes nothing.
type DeleteTopic struct {
	Topic          string
	Now            bool
	BrokerByBroker bool
}

// UndeleteTopic restores a deleted topic within its grace: the topic with the id or, without an id, the topic of the
// name that was deleted last. ErrConflict: another topic has the name.
type UndeleteTopic struct {
	Topic string
	ID    ident.TopicID
}

// PurgeTopic permanently removes the deleted topics of a name before their grace is over. If ID is set, only that one.
type PurgeTopic struct {
	Topic string
	ID    ident.TopicID
}

// EmptyTopic drops the messages that no channel has received.
type EmptyTopic struct{ Topic string }

// PauseTopic pauses a topic, so that its channels receive no later messages, or unpauses it.
type PauseTopic struct {
	Topic  string
	Paused bool
}

// MoveReplica moves a replica of a partition from one broker to another.
type MoveReplica struct {
	Topic     string
	Partition int // −1: the argument could not be parsed
	From, To  ident.Node
}

// SetReplication changes the number of replicas of a topic, and the number of replicas that must be in sync for a put;
// 0: unchanged.
type SetReplication struct {
	Topic                        string
	ReplicationFactor, MinInSync int
}

// SetPartitions raises the number of partitions of a topic; it never lowers the number. Reorder permits it for a topic
// that is ordered or recognises content, although keys and contents may then move to other partitions.
type SetPartitions struct {
	Topic      string
	Partitions int
	Reorder    bool
}

// Balance spreads replicas and leaders over the brokers.
type Balance struct{}

// Decommission moves all replicas of a broker away, or cancels a decommission.
type Decommission struct {
	Node   ident.Node
	Cancel bool
}

// Drain moves the leaderships of a broker away, and its replicas if requested. The broker gets no new ones until the
// drain is cancelled. It stays a member of the cluster.
type Drain struct {
	Node             ident.Node
	Replicas, Cancel bool
}

// CreateChannel creates a channel. If the channel exists with a From, Ordered or Filter other than the given one, the
// error is ErrConflict.
type CreateChannel struct {
	Topic, Channel string
	From           string // earliest | latest | <time> | <sequence>; "": by the rules
	Ordered        *bool  // nil: as the topic
	Filter         string // "": every message is delivered, or unchanged
}

// DeleteChannel deletes a channel.
type DeleteChannel struct{ Topic, Channel string }

// EmptyChannel finishes all messages of a channel.
type EmptyChannel struct{ Topic, Channel string }

// PauseChannel stops the deliveries of a channel, or resumes them.
type PauseChannel struct {
	Topic, Channel string
	Paused         bool
}

// SeekChannel moves a channel in one partition, or in all.
type SeekChannel struct {
	Topic, Channel string
	To             string // earliest | latest | <time> | <sequence>
	Partition      int    // −1: all
	Idle           bool   // only where the channel has no consumers
	DryRun         bool   // nothing moves; the effect is counted
}

// OrderChannel makes a channel ordered, or unordered.
type OrderChannel struct {
	Topic, Channel string
	Ordered        bool
}

// SetPolicy changes the treatment of failing messages, and the filter.
type SetPolicy struct {
	Topic, Channel string
	Policy         option.Change[option.Policy]
}

// Planner reports what an operation on the placement (Balance, MoveReplica, Decommission, Drain) would change. Errors
// are those of Admin.
type Planner interface {
	Plan(ctx context.Context, op Operation) (Plan, error)
}

// Plan is the whole change that an operation would start in the current state of the cluster.
type Plan struct {
	Steps   []PlanStep   `json:"steps"`   // by topic and partition
	Brokers []PlanBroker `json:"brokers"` // all brokers, by name
	Blocked []string     `json:"blocked"` // partitions that cannot be moved as requested, with the reason
}

// PlanStep is a partition that changes.
type PlanStep struct {
	Topic         string       `json:"topic"`
	Partition     int          `json:"partition"`
	Replicas      []ident.Node `json:"replicas"`
	ReplicasAfter []ident.Node `json:"replicas_after"`
	Leader        ident.Node   `json:"leader"`
	LeaderAfter   ident.Node   `json:"leader_after"`
}

// PlanBroker is the load of a broker before and after.
type PlanBroker struct {
	Broker        ident.Node `json:"broker"`
	Replicas      int        `json:"replicas"`
	ReplicasAfter int        `json:"replicas_after"`
	Leads         int        `json:"leads"`
	LeadsAfter    int        `json:"leads_after"`
}

// Compare orders steps by topic and partition.
func (s PlanStep) Compare(o PlanStep) int {
	return cmp.Or(cmp.Compare(s.Topic, o.Topic), cmp.Compare(s.Partition, o.Partition))
}

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
	// Refused is the reason why an unclean recovery is not possible, or not needed; "": recovery is possible and the
	// only remedy.
	Refused string `json:"refused,omitempty"`
}

// Member is a member of the in-sync set: it held every acknowledged message.
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
