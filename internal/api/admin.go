package api

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/nsqd/filter"
)

// Admin carries out administrative operations, each the same on every broker. It returns
// after the change is replicated. Errors wrap ErrTopicNotFound, ErrChannelNotFound,
// ErrBrokerNotFound, ErrInvalid, ErrConflict, ErrUnavailable.
type Admin interface {
	Do(ctx context.Context, op Operation) error
}

// Operation is one administrative operation: a value of one of the types below. It is
// idempotent.
//
// The field Malformed has the error of an argument that the edge could not read. Validate
// returns it where that argument is checked: a topic that does not exist is reported before
// its arguments.
type Operation interface {
	// Target is the topic and the channel of the operation; "" = none.
	Target() (topic, channel string)
	// Validate reports the first argument that is wrong, whatever the cluster is like.
	Validate() error
}

// CreateTopic creates a topic. 0 and nil take the broker's default. If the topic exists with other
// settings than the given ones, the error is ErrConflict.
type CreateTopic struct {
	Topic                                    string
	Partitions, ReplicationFactor, MinInSync int
	Ordered                                  *bool
	Durability                               string // "sync", "replicated"; "": the default
	Malformed                                error
	Limits                                   TopicLimits // with an error of its own
}

// SetTopic changes the limits and the durability of a topic. SetReplication and SetPartitions change
// the rest.
type SetTopic struct {
	Topic      string
	Durability string // "sync", "replicated"; "": as it is
	Limits     TopicLimits
}

// TopicLimits are new values of a topic's options; those that are not given are the default, or stay as they are.
type TopicLimits struct {
	option.Change
	Malformed error
}

// EffectiveLimits are the options that a topic has; TopicView and TopicSettings contain them.
type EffectiveLimits = option.Effective

// DeleteTopic deletes a topic with all its messages. With a grace (--delete-grace) it can be
// undeleted for that time, unless Now is set. BrokerByBroker says that the client asks all brokers, one
// after the other, as nsqadmin does: a topic that a put has made again in between is not deleted again,
// and a broker that is tombstoned for the topic deletes nothing.
type DeleteTopic struct {
	Topic          string
	Now            bool
	BrokerByBroker bool
	Malformed      error
}

// UndeleteTopic brings a deleted topic back within its grace: the one with the id, or without one the
// last one of the name that was deleted. ErrConflict: another topic has the name.
type UndeleteTopic struct {
	Topic     string
	ID        ident.TopicID
	Malformed error
}

// PurgeTopic removes deleted topics of a name permanently, before their grace is over; with an id that
// one alone.
type PurgeTopic struct {
	Topic     string
	ID        ident.TopicID
	Malformed error
}

// EmptyTopic drops the messages that no channel has received.
type EmptyTopic struct{ Topic string }

// PauseTopic pauses a topic, so that its channels receive no later messages, or unpauses
// it.
type PauseTopic struct {
	Topic  string
	Paused bool
}

// MoveReplica moves a replica of a partition from one broker to another.
type MoveReplica struct {
	Topic     string
	Partition int // −1: it could not be read
	From, To  ident.Node
}

// SetReplication changes the number of replicas of a topic, and the number of them that
// must be in sync for a put; 0 = unchanged.
type SetReplication struct {
	Topic                        string
	ReplicationFactor, MinInSync int
	Malformed                    error
}

// SetPartitions raises the number of partitions of a topic; it never lowers the number. Reorder
// allows it for an ordered topic, and for one that recognises content, although keys and contents may then
// move to other partitions.
type SetPartitions struct {
	Topic      string
	Partitions int
	Reorder    bool
	Malformed  error
}

// Balance spreads replicas and leaders over the brokers.
type Balance struct{}

// Decommission moves all replicas of a broker away, or cancels a decommission.
type Decommission struct {
	Node      ident.Node
	Cancel    bool
	Malformed error
}

// Drain moves the leaderships of a broker away, and its replicas if requested. The broker gets no
// new ones until the drain is cancelled. It stays a member of the cluster.
type Drain struct {
	Node             ident.Node
	Replicas, Cancel bool
	Malformed        error
}

// CreateChannel creates a channel. If the channel exists with a From, Ordered or Filter other
// than the given one, the error is ErrConflict.
type CreateChannel struct {
	Topic, Channel string
	From           string // "" = by the rules; earliest | latest | <time> | <sequence>
	Ordered        *bool  // nil = as the topic
	Filter         string // "" = every message is delivered, or as it is
	Malformed      error
}

// DeleteChannel deletes a channel.
type DeleteChannel struct{ Topic, Channel string }

// EmptyChannel finishes all messages of a channel.
type EmptyChannel struct{ Topic, Channel string }

// PauseChannel stops the deliveries of a channel, or lets it deliver again.
type PauseChannel struct {
	Topic, Channel string
	Paused         bool
}

// SeekChannel moves a channel in one partition, or in all.
type SeekChannel struct {
	Topic, Channel string
	To             string // earliest | latest | <time> | <sequence>
	Partition      int    // −1 = all
	Idle           bool   // only where the channel has no consumers
	DryRun         bool   // nothing moves; the effect is counted
	Malformed      error
}

// OrderChannel makes a channel ordered, or unordered.
type OrderChannel struct {
	Topic, Channel string
	Ordered        bool
	Malformed      error
}

// SetPolicy changes the treatment of messages that fail, and the filter; nil = as it is.
type SetPolicy struct {
	Topic, Channel  string
	MaxAttempts     *uint16
	DeadLetterTopic *string
	Backoff         *Backoff
	Filter          *string // "" = every message is delivered
	Malformed       error
}

// Backoff is the delay of a message that failed: the base, times the factor at each further
// attempt, at most the maximum, shortened at random by up to the jitter. Zero = none.
type Backoff struct {
	BaseMS, MaxMS  int64
	Factor, Jitter float64
}

// maxBackoff bounds the times of a backoff.
const maxBackoff = 30 * 24 * time.Hour

// ParseBackoff reads "base[,factor[,max[,jitter]]]", such as 1s,2,5m,0.2; "" = no backoff.
func ParseBackoff(text string) (b Backoff, err error) {
	if text == "" {
		return Backoff{}, nil
	}
	parts := append(strings.Split(text, ","), "", "", "")
	base, err := time.ParseDuration(parts[0])
	b.BaseMS, b.Factor = base.Milliseconds(), 2
	if err == nil && parts[1] != "" {
		b.Factor, err = strconv.ParseFloat(parts[1], 64)
	}
	if err == nil && parts[2] != "" {
		var most time.Duration
		most, err = time.ParseDuration(parts[2])
		b.MaxMS = most.Milliseconds()
	}
	if err == nil && parts[3] != "" {
		b.Jitter, err = strconv.ParseFloat(parts[3], 64)
	}
	if err != nil || len(parts) > 7 {
		return Backoff{}, errBackoff()
	}
	return b, b.Validate()
}

// errBackoff is the error of a backoff that cannot be read or is out of bounds.
func errBackoff() error {
	return fmt.Errorf("%w: retry_backoff must be base[,factor[,max[,jitter]]], such as 1s,2,5m,0.2", ErrInvalid)
}

// Validate refuses the numbers of a backoff that are out of bounds.
func (b Backoff) Validate() error {
	limit := maxBackoff.Milliseconds()
	if b.BaseMS < 0 || b.BaseMS > limit || b.MaxMS < 0 || b.MaxMS > limit ||
		!(b.Factor >= 1 && b.Factor <= 100) || !(b.Jitter >= 0 && b.Jitter <= 1) {
		return errBackoff()
	}
	return nil
}

// Target implements Operation.
func (o CreateTopic) Target() (topic, channel string) { return o.Topic, "" }

// Target implements Operation.
func (o SetTopic) Target() (topic, channel string) { return o.Topic, "" }

// Target implements Operation.
func (o DeleteTopic) Target() (topic, channel string) { return o.Topic, "" }

// Target implements Operation.
func (o UndeleteTopic) Target() (topic, channel string) { return o.Topic, "" }

// Target implements Operation.
func (o PurgeTopic) Target() (topic, channel string) { return o.Topic, "" }

// Target implements Operation.
func (o EmptyTopic) Target() (topic, channel string) { return o.Topic, "" }

// Target implements Operation.
func (o PauseTopic) Target() (topic, channel string) { return o.Topic, "" }

// Target implements Operation.
func (o MoveReplica) Target() (topic, channel string) { return o.Topic, "" }

// Target implements Operation.
func (o SetReplication) Target() (topic, channel string) { return o.Topic, "" }

// Target implements Operation.
func (o SetPartitions) Target() (topic, channel string) { return o.Topic, "" }

// Target implements Operation.
func (Balance) Target() (topic, channel string) { return "", "" }

// Target implements Operation.
func (Decommission) Target() (topic, channel string) { return "", "" }

// Target implements Operation.
func (Drain) Target() (topic, channel string) { return "", "" }

// Target implements Operation.
func (o CreateChannel) Target() (topic, channel string) { return o.Topic, o.Channel }

// Target implements Operation.
func (o DeleteChannel) Target() (topic, channel string) { return o.Topic, o.Channel }

// Target implements Operation.
func (o EmptyChannel) Target() (topic, channel string) { return o.Topic, o.Channel }

// Target implements Operation.
func (o PauseChannel) Target() (topic, channel string) { return o.Topic, o.Channel }

// Target implements Operation.
func (o SeekChannel) Target() (topic, channel string) { return o.Topic, o.Channel }

// Target implements Operation.
func (o OrderChannel) Target() (topic, channel string) { return o.Topic, o.Channel }

// Target implements Operation.
func (o SetPolicy) Target() (topic, channel string) { return o.Topic, o.Channel }

// Validate implements Operation. The limits are checked later (Limits.Malformed), as are
// values that depend on the defaults.
func (o CreateTopic) Validate() error { return cmp.Or(o.Malformed, o.Limits.Malformed) }

// Validate implements Operation.
func (o SetTopic) Validate() error {
	if o.Durability == "" && o.Limits == (TopicLimits{}) {
		return fmt.Errorf("%w: name durability, a limit, or more of them", ErrInvalid)
	}
	return o.Limits.Malformed
}

// Validate implements Operation.
func (o DeleteTopic) Validate() error { return o.Malformed }

// Validate implements Operation.
func (o UndeleteTopic) Validate() error { return o.Malformed }

// Validate implements Operation.
func (o PurgeTopic) Validate() error { return o.Malformed }

// Validate implements Operation.
func (EmptyTopic) Validate() error { return nil }

// Validate implements Operation.
func (PauseTopic) Validate() error { return nil }

// Validate implements Operation: the number of partitions is the topic's.
func (MoveReplica) Validate() error { return nil }

// Validate implements Operation.
func (o SetReplication) Validate() error {
	if o.Malformed == nil && o.ReplicationFactor == 0 && o.MinInSync == 0 {
		return fmt.Errorf("%w: name replication_factor, min_in_sync, or both", ErrInvalid)
	}
	return o.Malformed
}

// Validate implements Operation.
func (o SetPartitions) Validate() error {
	if o.Malformed == nil && o.Partitions == 0 {
		return fmt.Errorf("%w: name partitions", ErrInvalid)
	}
	return o.Malformed
}

// Validate implements Operation.
func (Balance) Validate() error { return nil }

// Validate implements Operation.
func (o Decommission) Validate() error { return o.Malformed }

// Validate implements Operation.
func (o Drain) Validate() error { return o.Malformed }

// Validate implements Operation. From is checked in the same place as that of
// subscriptions.
func (o CreateChannel) Validate() error {
	if o.Malformed != nil {
		return o.Malformed
	}
	return validFilter(o.Filter)
}

// Validate implements Operation.
func (DeleteChannel) Validate() error { return nil }

// Validate implements Operation.
func (EmptyChannel) Validate() error { return nil }

// Validate implements Operation.
func (PauseChannel) Validate() error { return nil }

// Validate implements Operation.
func (o SeekChannel) Validate() error {
	if o.To == "" {
		return fmt.Errorf("%w: to must be earliest, latest, a time or a sequence", ErrInvalid)
	}
	return o.Malformed
}

// Validate implements Operation.
func (o OrderChannel) Validate() error { return o.Malformed }

// Validate implements Operation. The policy as a whole is checked with the parts that
// stay (package admin).
func (o SetPolicy) Validate() error {
	if o.Malformed == nil && o.MaxAttempts == nil && o.DeadLetterTopic == nil && o.Backoff == nil && o.Filter == nil {
		return fmt.Errorf("%w: name max_attempts, dead_letter_topic, retry_backoff, filter, or more of them", ErrInvalid)
	}
	if o.Malformed == nil && o.Filter != nil {
		return validFilter(*o.Filter)
	}
	return o.Malformed
}

// validFilter refuses the text of a filter that no broker could apply.
func validFilter(text string) error {
	if _, err := filter.Parse(text); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}
