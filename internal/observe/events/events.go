package events

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	// kept is how long an event is kept.
	kept = 24 * time.Hour
	// maxPartitionEvents bounds the changes of partitions, maxEvents the other events.
	maxPartitionEvents = 8192
	maxEvents          = 2048
)

// The kinds of events.
const (
	Election     = "election"
	InSync       = "isr"
	Rollback     = "rollback"
	Truncation   = "truncation"
	Alarm        = "alarm"
	AlarmEnded   = "alarm_ended"
	BrokerUp     = "broker_up"
	BrokerDown   = "broker_down"
	Registration = "registration"
	Topic        = "topic"
	Audit        = "audit"
)

// Codes of alarms that a broker itself raises; package health defines the others.
const (
	ReplicaAlarm = "replica_alarm" // a replica refuses a message that violates the protocol
	StoreFailed  = "store_failed"  // a broker reports that its store has failed or hangs
	DataMissing  = "data_missing"  // a broker found at its start that acknowledged data may be missing on its disk
)

// Kinds lists all kinds.
func Kinds() []string {
	return []string{Election, InSync, Rollback, Truncation, Alarm, AlarmEnded, BrokerUp, BrokerDown, Registration, Topic, Audit}
}

// Event is one event. The fields that it has depend on its kind.
type Event struct {
	At   time.Time
	Kind string
	// Topic and Partition are set for a change of a partition, and Topic alone for a change of a topic.
	Topic     string
	ID        ident.Partition
	Epoch     ident.Epoch
	Leader    ident.Node // after an election; "" = none
	Before    ident.Node // the leader before it
	Members   []ident.Member
	Left      []ident.Node // brokers that left the in-sync set
	Joined    []ident.Node
	Broker    ident.Node // the broker that it concerns, or that recorded it
	Run       ident.Incarnation
	Revision  int64  // of the partition's key
	State     string // for an alarm: degraded or unsafe
	Code      string
	Text      string
	Do        string
	Where     []string
	Lasted    time.Duration // for an alarm that ended: how long it lasted
	OfCluster bool          // the event is in the metadata, so every broker sees it
}

// OfPartition reports whether the event is a change of one partition.
func (e *Event) OfPartition() bool {
	return e.Kind == Election || e.Kind == InSync || e.Kind == Rollback || e.Kind == Truncation
}

type key struct {
	kind, topic, code string
	id                ident.Partition
	epoch             ident.Epoch
	leader, broker    ident.Node
	run               ident.Incarnation
	revision          int64
}

// Key is a comparable value that identifies an event that several brokers saw. It is nil for an event of only one broker.
func (e *Event) Key() any {
	if !e.OfCluster {
		return nil
	}
	return key{e.Kind, e.Topic, e.Code, e.ID, e.Epoch, e.Leader, e.Broker, e.Run, e.Revision}
}

// Recorder keeps the events. All methods are safe for concurrent use and do nothing on a nil Recorder.
type Recorder struct {
	mu         sync.Mutex
	partitions ring
	others     ring
}

// New makes an empty Recorder.
func New() *Recorder {
	return &Recorder{partitions: ring{limit: maxPartitionEvents}, others: ring{limit: maxEvents}}
}

// Add records an event. Its time defaults to now.
func (r *Recorder) Add(e Event) {
	if r == nil {
		return
	}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(&e)
}

func (r *Recorder) addLocked(e *Event) {
	if e.OfPartition() {
		r.partitions.add(e)
	} else {
		r.others.add(e)
	}
}

// Restore adds the events of an earlier process of the broker. complete: no older events are missing.
func (r *Recorder) Restore(past []Event, complete bool) {
	if r == nil || len(past) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Concat(r.partitions.events, r.others.events)
	for i := range past {
		all = append(all, &past[i])
	}
	slices.SortStableFunc(all, func(a, b *Event) int { return a.At.Compare(b.At) })
	r.partitions, r.others = ring{limit: maxPartitionEvents}, ring{limit: maxEvents}
	if !complete {
		r.partitions.dropped, r.others.dropped = all[0].At, all[0].At
	}
	for _, e := range all {
		r.addLocked(e)
	}
}

// Since lists at most limit of the events after a time that match, the newest first. complete is false if there were
// more, or if older ones were dropped to save memory.
func (r *Recorder) Since(at time.Time, limit int, match func(*Event) bool) (list []Event, complete bool) {
	if r == nil {
		return nil, true
	}
	if oldest := time.Now().Add(-kept); at.Before(oldest) {
		at = oldest
	}
	r.mu.Lock()
	found := slices.Concat(r.partitions.events, r.others.events) // copies only pointers, because Add must not wait while thousands of events are examined
	complete = !r.partitions.dropped.After(at) && !r.others.dropped.After(at)
	r.mu.Unlock()
	found = slices.DeleteFunc(found, func(e *Event) bool { return !e.At.After(at) || !match(e) })
	slices.SortStableFunc(found, func(a, b *Event) int { return b.At.Compare(a.At) })
	if len(found) > limit {
		found, complete = found[:limit], false
	}
	list = make([]Event, len(found))
	for i, e := range found {
		list[i] = *e
	}
	return list, complete
}

// ring has the last events. It grows up to its limit.
type ring struct {
	limit   int
	events  []*Event // none of them changes
	next    int
	dropped time.Time // of the newest event that was dropped
}

func (r *ring) add(e *Event) {
	if len(r.events) < r.limit {
		r.events = append(r.events, e)
		return
	}
	r.dropped = r.events[r.next].At
	r.events[r.next] = e
	r.next = (r.next + 1) % r.limit
}

// Sentence describes an event that concerns the given number of partitions.
func (e *Event) Sentence(count int) string {
	subject := fmt.Sprintf("%s/%d", e.Topic, e.ID.Number)
	if count > 1 {
		subject = fmt.Sprintf("%d partitions", count)
	}
	switch e.Kind {
	case Election:
		switch {
		case e.Leader == "":
			return fmt.Sprintf("%s: lost leader %s", subject, e.Before)
		case e.Before == "":
			return fmt.Sprintf("%s: leader %s", subject, e.Leader)
		}
		return fmt.Sprintf("%s: leader %s → %s", subject, e.Before, e.Leader)
	case InSync:
		var parts []string
		if len(e.Left) > 0 {
			parts = append(parts, names(e.Left)+" left")
		}
		if len(e.Joined) > 0 {
			parts = append(parts, names(e.Joined)+" joined")
		}
		return fmt.Sprintf("%s the in-sync set of %s", strings.Join(parts, ", "), subject)
	case Rollback:
		return fmt.Sprintf("%s rolled back the uncommitted end of %s", e.Broker, subject)
	case Truncation:
		return fmt.Sprintf("%s truncated an uncommitted end of %s at its new leader's request", e.Broker, subject)
	}
	return e.Text
}

func names(nodes []ident.Node) string {
	var list []string
	for _, n := range nodes {
		list = append(list, string(n))
	}
	return strings.Join(list, " and ")
}
