package quota

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/time/rate"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/nsqd"
)

// Limits bound the cluster; 0: no limit. Every broker has the same.
type Limits struct {
	Topics, Partitions int
	Channels           int // of one topic: the durable channels; each leader allows as many ephemeral ones in addition
}

// Quotas refuses creations beyond the limits of the cluster and the quota of the requester's user. It counts the
// watched metadata and the creations in progress on this broker.
type Quotas struct {
	limits  Limits
	catalog *catalog.Catalog
	note    func(who api.Requester, detail string, err error)
	mu      struct {
		sync.Mutex
		paces    map[string]*rate.Limiter // of the users who created topics recently
		topics   map[string]pendingTopic
		channels map[pendingKey]pendingOwner
	}
}

// pendingTopic is a topic that is being created or enlarged here.
type pendingTopic struct {
	owner      string
	partitions int // when that is done
}

type pendingKey struct{ topic, channel string }

// pendingOwner is a channel that is being created here, perhaps by several callers.
type pendingOwner struct {
	owner   string
	callers int
}

// New returns the quotas of a broker. note records what a client created, or a refusal (err); nil: nothing is recorded.
func New(l Limits, c *catalog.Catalog, note func(api.Requester, string, error)) *Quotas {
	q := &Quotas{limits: l, catalog: c, note: note}
	q.mu.paces = map[string]*rate.Limiter{}
	q.mu.topics, q.mu.channels = map[string]pendingTopic{}, map[pendingKey]pendingOwner{}
	return q
}

// over is the error of one quota; nil while there is room for n more.
func over(there, n, limit int, of, whose string) error {
	if limit <= 0 || there+n <= limit {
		return nil
	}
	return fmt.Errorf("%w: %s has %d of %d %s", outcome.ErrQuota, whose, there, limit, of)
}

// Usage counts what a user created, without the creations in progress.
func (q *Quotas) Usage(user string) api.Usage {
	_, own := q.catalog.Usage(user, nothing)
	return api.Usage(own)
}

// Limits returns the limits of the cluster and their current use.
func (q *Quotas) Limits() api.LimitsView {
	all, _ := q.catalog.Usage("", nothing)
	v := api.LimitsView{
		Topics:     api.LimitView{Used: all.Topics, Limit: q.limits.Topics},
		Partitions: api.LimitView{Used: all.Partitions, Limit: q.limits.Partitions},
		Channels:   api.LimitView{Limit: q.limits.Channels},
	}
	for _, name := range q.catalog.Topics() {
		if t, ok := q.catalog.Topic(name); ok {
			v.Channels.Used = max(v.Channels.Used, len(q.catalog.Channels(t.ID)))
		}
	}
	return v
}

// nothing is a catalog.Usage filter without pending topics and channels.
func nothing(string, string) bool { return false }

// Topic admits a new topic until done is called, or returns the quota that refuses it. One caller at a time creates a
// topic of a name (topics.locks).
func (q *Quotas) Topic(ctx context.Context, name string, partitions int) (done func(), err error) {
	who := api.RequesterOf(ctx)
	defer func() { q.recordRefusal(who, "create topic "+name, err) }() // without the lock
	q.mu.Lock()
	defer q.mu.Unlock()
	all, own := q.usageLocked(who.User)
	user := "user " + who.User
	for _, err := range []error{
		over(all.Topics, 1, q.limits.Topics, "topics (--max-topics)", "the cluster"),
		over(all.Partitions, partitions, q.limits.Partitions, "partitions (--max-partitions)", "the cluster"),
		over(own.Topics, 1, who.Topics, "topics", user),
		over(own.Partitions, partitions, who.Partitions, "partitions", user),
	} {
		if err != nil {
			return nil, err
		}
	}
	if who.Topics > 0 && !q.paceLocked(who.User).Allow() {
		return nil, fmt.Errorf("%w: user %s has created %d topics within seconds, and may create %d a second now; repeat later",
			outcome.ErrRateLimited, who.User, createBurst, createRate)
	}
	q.mu.topics[name] = pendingTopic{who.User, partitions}
	return func() { q.doneTopic(name) }, nil
}

// Token bucket for a user with a topic quota: how many topics the user may create at once at this broker, and per
// second.
const (
	createBurst = 100
	createRate  = 5
	maxPaces    = 10_000 // users whose rate is tracked
)

func (q *Quotas) paceLocked(user string) *rate.Limiter {
	if p := q.mu.paces[user]; p != nil {
		return p
	}
	if len(q.mu.paces) >= maxPaces {
		clear(q.mu.paces)
	}
	p := rate.NewLimiter(createRate, createBurst)
	q.mu.paces[user] = p
	return p
}

// Partitions admits the growth of a topic with this owner until done is called, or returns the quota that refuses it.
// One caller at a time changes a topic of a name (topics.locks).
func (q *Quotas) Partitions(ctx context.Context, name, owner string, from, to int) (done func(), err error) {
	who := api.RequesterOf(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	all, own := q.usageLocked(who.User)
	err = over(all.Partitions, to-from, q.limits.Partitions, "partitions (--max-partitions)", "the cluster")
	if err == nil && owner == who.User {
		err = over(own.Partitions, to-from, who.Partitions, "partitions", "user "+who.User)
	}
	if err != nil {
		return nil, err
	}
	q.mu.topics[name] = pendingTopic{owner, to}
	return func() { q.doneTopic(name) }, nil
}

// usageLocked counts what exists, and what is pending here, in the cluster and of a user.
func (q *Quotas) usageLocked(user string) (all, own catalog.Usage) {
	all, own = q.catalog.Usage(user, q.pendingLocked)
	for _, p := range q.mu.topics {
		all.Topics, all.Partitions = all.Topics+1, all.Partitions+p.partitions
		if p.owner == user {
			own.Topics, own.Partitions = own.Topics+1, own.Partitions+p.partitions
		}
	}
	return all, own
}

func (q *Quotas) doneTopic(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.mu.topics, name)
}

// Channel reserves room for a durable channel until done is called, or returns the quota that refuses it. first reports
// that no other caller on this broker is creating it. A channel that exists is always admitted.
func (q *Quotas) Channel(ctx context.Context, topic, channel string) (done func(), first bool, err error) {
	t, ok := q.catalog.Topic(topic)
	if !ok {
		return func() {}, false, nil // the caller finds out
	}
	if _, there := q.catalog.Channels(t.ID)[channel]; there {
		return func() {}, false, nil
	}
	who, key := api.RequesterOf(ctx), pendingKey{topic, channel}
	defer func() { q.recordRefusal(who, "create channel "+topic+"/"+channel, err) }() // without the lock
	q.mu.Lock()
	defer q.mu.Unlock()
	p, shared := q.mu.channels[key]
	if !shared {
		if err := q.roomLocked(who, topic, t); err != nil {
			return nil, false, err
		}
		p.owner = who.User
	}
	p.callers++
	q.mu.channels[key] = p
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		p := q.mu.channels[key]
		if p.callers--; p.callers > 0 {
			q.mu.channels[key] = p
			return
		}
		delete(q.mu.channels, key)
	}, !shared, nil
}

// pendingLocked reports whether a topic, or a channel of it, is counted as pending here. It is pending until the
// metadata has it, so each is counted once.
func (q *Quotas) pendingLocked(topic, channel string) bool {
	if channel == "" {
		_, pending := q.mu.topics[topic]
		return pending
	}
	_, pending := q.mu.channels[pendingKey{topic, channel}]
	return pending
}

// roomLocked returns the quota error that refuses one more channel of a topic.
func (q *Quotas) roomLocked(who api.Requester, topic string, t metadata.TopicState) error {
	of, own := 0, 0
	for channel := range q.catalog.Channels(t.ID) {
		if !q.pendingLocked(topic, channel) {
			of++
		}
	}
	if who.Channels > 0 {
		_, usage := q.catalog.Usage(who.User, q.pendingLocked)
		own = usage.Channels
	}
	for key, p := range q.mu.channels {
		if key.topic == topic {
			of++
		}
		if p.owner == who.User {
			own++
		}
	}
	if err := over(of, 1, q.limits.Channels, "channels (--max-channels)", "topic "+topic); err != nil {
		return err
	}
	return over(own, 1, who.Channels, "channels", "user "+who.User)
}

// Ephemeral admits an ephemeral channel in a partition that already has the given channels.
func (q *Quotas) Ephemeral(channels []string, channel string) error {
	n := 0
	for _, name := range channels {
		if name == channel {
			return nil
		}
		if nsqd.IsEphemeral(name) {
			n++
		}
	}
	return over(n, 1, q.limits.Channels, "ephemeral channels (--max-channels)", "the topic")
}

// record records a change or a refusal (err), unless the request itself is audited.
func (q *Quotas) record(who api.Requester, what string, err error) {
	if q.note != nil && who.Identity != "" && !who.Audited {
		q.note(who, what, err)
	}
}

func (q *Quotas) recordRefusal(who api.Requester, what string, err error) {
	if err != nil {
		q.record(who, what, err)
	}
}

// Implied records a change that no request asked for by name: a put or a subscription created something, or an unused
// topic was deleted.
func (q *Quotas) Implied(ctx context.Context, what string) {
	q.record(api.RequesterOf(ctx), what, nil)
}
