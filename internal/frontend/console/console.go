package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/health"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

const (
	// DefaultStep is the time between two points of a series.
	DefaultStep = 10 * time.Second
	// askTimeout bounds the wait for one broker.
	askTimeout = time.Second
	// tableFor is the minimum time for which a table of all topics is reused: the pages of many viewers share it. A
	// table, and a broker's part of it, is reused for timesCost times the time that it took to build, so that open
	// pages take at most a twentieth of a CPU. A part is used for at most tableFor, a table for at most tableForMost.
	tableFor, tableForMost = time.Second, 5 * time.Second
	timesCost              = 20
	// keepTableFor is how long the table stays in memory after the last request.
	keepTableFor = 10 * time.Second
)

// ErrPartitionNotFound means that the topic has no partition with that number.
var ErrPartitionNotFound = errors.New("console: the topic has no such partition")

// Cluster is the serving broker; coordinator.Broker.Console is one.
type Cluster interface {
	// View is the cluster in the metadata. It queries no other broker and does not wait. Its topics are shared.
	View() api.ClusterView
	// Members is View without the topics; TopicView is one topic of View.
	Members() api.ClusterView
	TopicView(name string) (api.TopicView, bool)
	// Samples returns the topics that have partitions led by this broker; "" = all.
	Samples(topic, channel string) []api.TopicSample
	// Replica is the replica of a partition here.
	Replica(topic string, partition uint16) (api.ReplicaSample, bool)
	Disk() api.DiskSample
	Faults() api.FaultSample
	// Damage lists the damaged ranges of the replicas here.
	Damage() []api.PlacedDamage
	// FollowerLag is how long replicas on each other broker have owed an acknowledgement to this broker, which leads
	// them: the longest of its partitions.
	FollowerLag() map[ident.Node]time.Duration
	// AskConsole sends a query to a broker, whose Console answers it (Console.Answer).
	AskConsole(ctx context.Context, n ident.Node, question []byte) ([]byte, error)
	Policy(topic, channel string) (api.ChannelPolicy, error)
	TopicSettings(topic string) (api.TopicSettings, bool)
	Channels(topic string) []string
}

// Options of a Console. Cluster is required.
type Options struct {
	Cluster Cluster
	Metrics *metrics.Recorder
	Events  *events.Recorder
	Audit   *guard.Audit // nil = none
	// Connections counts the clients' connections, and Clients what they do; both may be nil.
	Connections func() (tcp, http int)
	Clients     func() (consumers, producers, idle int)
	Consumers   func(topic, channel string) []api.ConsumerStats
	// Own is the process's report on itself, and its role in the embedded etcd: leader, member or none; nil = nothing.
	Own     func() (own health.Own, etcd string)
	Started time.Time
	Step    time.Duration // 0 = DefaultStep
	// File keeps the last hour, the events and the audit across a restart; "" = they are lost. Log is required with it.
	File string
	Log  logrus.FieldLogger
}

// Console answers for the whole cluster. Its methods may be called by any goroutine. Keep must run.
type Console struct {
	o    Options
	self ident.Node
	mu   sync.Mutex // a leaf
	kept sampled    // guarded by mu
	// connected is the time since which the metadata has answered every check, so that this broker has all changes
	// since. Zero: the metadata does not answer, or has not been checked yet. Guarded by mu.
	connected time.Time
	alarms    alarms
	saving    chan struct{}    // capacity 1: has an element while the file is written
	unsaved   bool             // the last write of the file has failed and was logged; guarded by saving
	shared    cache[*table]    // its lock is held while the brokers are queried, so that concurrent requests share the answer
	given     cache[givenPart] // its lock is held while the part is built
}

type givenPart struct {
	part part
	raw  []byte // as JSON; nil until another broker requests it
}

// cache holds a value for as long as it is used.
type cache[T any] struct {
	sync.Mutex
	value  T
	at     time.Time // zero: there is no value
	serves time.Duration
}

func (c *cache[T]) freshLocked(now time.Time) bool { return !c.at.IsZero() && now.Sub(c.at) < c.serves }

// setLocked sets a value that was made since a time, and is used for timesCost times as long as it took, within bounds.
func (c *cache[T]) setLocked(value T, began time.Time, least, most time.Duration) {
	c.value, c.at = value, time.Now()
	c.serves = min(max(timesCost*c.at.Sub(began), least), most)
}

// forget drops a value that was not used for some time, unless it is being requested.
func (c *cache[T]) forget() {
	if !c.TryLock() {
		return
	}
	defer c.Unlock()
	if time.Since(c.at) > keepTableFor {
		var none T
		c.value, c.at = none, time.Time{}
	}
}

// New makes a console with the samples of the file, if there is one.
func New(o Options) *Console {
	o.Step = cmp.Or(o.Step, DefaultStep)
	c := &Console{o: o, self: o.Cluster.Members().Self}
	c.kept = newSampled()
	c.alarms.of = map[string]*standing{}
	c.saving = make(chan struct{}, 1)
	if o.File != "" {
		if err := c.restore(); err != nil {
			o.Log.WithError(err).WithField("file", o.File).Warn("cannot read the saved history, the last hour and events of the previous process are lost")
		}
	}
	return c
}

// The parts of a query.
const (
	askTable   = "table"
	askChannel = "channel"
	askReplica = "replica"
	askTopic   = "topic"
	askEvents  = "events"
	askSeries  = "series"
)

// question is a query from one broker's console to another's. Fields may be added.
type question struct {
	What string `json:"what"`
	EventsOf
	Channel string `json:"channel,omitempty"`
	// WithoutClusterMS: without the events of the metadata from this time on, which the querying broker already has. 0:
	// with all events.
	WithoutClusterMS int64 `json:"without_cluster_ms,omitempty"`
}

// Answer answers a query from another broker's console.
func (c *Console) Answer(_ context.Context, raw []byte) ([]byte, error) {
	var q question
	if err := json.Unmarshal(raw, &q); err != nil {
		return nil, fmt.Errorf("%w: %w", outcome.ErrInvalid, err)
	}
	if q.What == askTable {
		return c.ownJSON()
	}
	a, err := c.answer(q)
	if err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

func (c *Console) answer(q question) (any, error) {
	switch q.What {
	case askTable:
		return c.ownPart(), nil
	case askChannel:
		return c.ownChannel(q.Topic, q.Channel), nil
	case askReplica:
		return c.ownReplica(q.Topic, q.Partition), nil
	case askTopic:
		return c.ownLeaders(q.Topic), nil
	case askEvents:
		return c.ownEvents(q), nil
	case askSeries:
		return c.ownSeries(q), nil
	}
	return nil, fmt.Errorf("%w: this broker's build has no answer to %q", outcome.ErrInvalid, q.What)
}

// answerOf is the answer of one broker.
type answerOf[A any] struct {
	broker ident.Node
	answer A
}

// askAll sends a query to all brokers of a view concurrently, or to only one of them. The answers come in the order of
// the names.
func askAll[A any](ctx context.Context, c *Console, v api.ClusterView, q question, only ident.Node) (answers []answerOf[A], missing []Unreachable) {
	raw, err := json.Marshal(q)
	missing = []Unreachable{}
	if err != nil {
		return nil, missing // it cannot fail: strings and numbers only
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, b := range v.Brokers {
		switch {
		case only != "" && b.Name != only:
		case !b.Alive && b.Name != c.self: // this broker answers even if it is not registered
			mu.Lock()
			missing = append(missing, Unreachable{b.Name, "dead"})
			mu.Unlock()
		default:
			asked.Go(func() { // ends with the answer, or with askTimeout
				a := answerOf[A]{broker: b.Name}
				err := ask(ctx, c, b.Name, q, raw, &a.answer)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					missing = append(missing, Unreachable{b.Name, err.Error()})
					return
				}
				answers = append(answers, a)
			})
		}
	}
	asked.Wait()
	slices.SortFunc(answers, func(a, b answerOf[A]) int { return cmp.Compare(a.broker, b.broker) })
	slices.SortFunc(missing, func(a, b Unreachable) int { return cmp.Compare(a.Broker, b.Broker) })
	return answers, missing
}

func ask[A any](ctx context.Context, c *Console, n ident.Node, q question, raw []byte, to *A) error {
	if n == c.self {
		q.WithoutClusterMS = 0
		own, err := c.answer(q)
		if err == nil {
			*to = own.(A)
		}
		return err
	}
	out, err := c.o.Cluster.AskConsole(ctx, n, raw)
	if err != nil {
		return err
	}
	return json.Unmarshal(out, to)
}

// first returns the first n of a list, never nil: JSON has [] and not null.
func first[T any](list []T, n int) []T {
	if list == nil {
		return []T{}
	}
	return list[:min(n, len(list))]
}
