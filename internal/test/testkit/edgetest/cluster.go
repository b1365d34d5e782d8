// Package edgetest is an in-memory cluster for the tests of the client edges: one node without
// durability, which commits every put at once unless a test changes that.
//
// It follows NSQ's rules for queues closely enough for black-box tests of the protocol and the
// HTTP API. It does not replicate, and a topic has one partition.
//
// # Invariants
//
//  1. It implements every interface of internal/api and keeps the invariants written
//     there.
//  2. All of its state is under one mutex; Close stops its timers.
package edgetest

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Cluster fakes the broker behind the edges.
type Cluster struct {
	// MaxConsumers limits the consumers of a channel; 0 = no limit. Set it
	// before use.
	MaxConsumers int
	// MaxMsgTimeout caps TOUCH. Set it before use.
	MaxMsgTimeout time.Duration

	mu struct {
		sync.Mutex
		topics   map[string]*topic
		sequence uint64
		number   uint64 // of the last delivery
		admit    error  // answer of Admit
		fate     error  // answer to puts
		health   error
		holding  bool
		held     []func()
		draftLog []int // messages per put
		ops      []api.Operation
		tombs    map[string]bool
		closed   bool
	}
}

type topic struct {
	name     string
	channels map[string]*channel
	backlog  []*message // messages while there is no channel, or while the topic is paused
	paused   bool
	messages uint64
	bytes    uint64

	identified map[queue.Identity]api.PutResult // by their first message
}

type message struct {
	id        api.MessageID
	sequence  ident.Sequence
	timeNS    int64
	deliverAt int64
	trace     uint64
	header    []byte
	body      []byte
	attempts  uint16
}

// New returns an empty cluster.
func New() *Cluster {
	c := &Cluster{MaxMsgTimeout: 15 * time.Minute}
	c.mu.topics = map[string]*topic{}
	c.mu.tombs = map[string]bool{}
	return c
}

// Close stops all timers.
func (c *Cluster) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.closed = true
	for _, t := range c.mu.topics {
		for _, ch := range t.channels {
			ch.stopLocked()
		}
	}
}

// FailAdmit makes Admit return err from now on.
func (c *Cluster) FailAdmit(err error) { c.mu.Lock(); c.mu.admit = err; c.mu.Unlock() }

// FailPuts makes the cluster answer puts with err, and store none, from now on.
func (c *Cluster) FailPuts(err error) { c.mu.Lock(); c.mu.fate = err; c.mu.Unlock() }

// FailHealth makes Health return err.
func (c *Cluster) FailHealth(err error) { c.mu.Lock(); c.mu.health = err; c.mu.Unlock() }

// Hold keeps the answers of puts back until Release.
func (c *Cluster) Hold() { c.mu.Lock(); c.mu.holding = true; c.mu.Unlock() }

// Held returns the number of held answers.
func (c *Cluster) Held() int { c.mu.Lock(); defer c.mu.Unlock(); return len(c.mu.held) }

// Release sends the held answers, the newest first: edges must restore the order themselves.
func (c *Cluster) Release() {
	c.mu.Lock()
	held := c.mu.held
	c.mu.held, c.mu.holding = nil, false
	c.mu.Unlock()
	slices.Reverse(held)
	for _, answer := range held {
		answer()
	}
}

// Puts returns the number of messages of each put.
func (c *Cluster) Puts() []int { c.mu.Lock(); defer c.mu.Unlock(); return slices.Clone(c.mu.draftLog) }

// Ops returns the administrative operations.
func (c *Cluster) Ops() []api.Operation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.mu.ops)
}

// Admit implements api.Publisher.
func (c *Cluster) Admit(_ context.Context, name string, _ int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.admit == nil {
		c.topicLocked(name)
	}
	return c.mu.admit
}

// Publish implements api.Publisher: a topic has one partition.
func (c *Cluster) Publish(name string, partition int, _ []byte, d queue.Draft, a api.Answerer) {
	if partition != 0 && partition != api.AnyPartition {
		a.Answer(api.PutResult{Err: fmt.Errorf("%w %d, but 0 to 0, not stored", outcome.ErrPartitionNotFound, partition)})
		return
	}
	c.mu.Lock()
	result := api.PutResult{Err: c.mu.fate}
	c.mu.draftLog = append(c.mu.draftLog, int(d.Count))
	if result.Err == nil {
		result = c.onceLocked(name, d)
	}
	if c.mu.holding {
		c.mu.held = append(c.mu.held, func() { a.Answer(result) })
		c.mu.Unlock()
		return
	}
	c.mu.Unlock()
	a.Answer(result)
}

// onceLocked stores a put. One whose first message was stored under its identity is answered with the
// first result.
func (c *Cluster) onceLocked(name string, d queue.Draft) api.PutResult {
	x, identified := d.First()
	t := c.topicLocked(name)
	if r, ok := t.identified[x]; ok && identified {
		r.Duplicate = true
		return r
	}
	r := api.PutResult{Sequence: ident.Sequence(c.mu.sequence)}
	r.ID = c.storeLocked(t, d)
	if identified {
		if t.identified == nil {
			t.identified = map[queue.Identity]api.PutResult{}
		}
		t.identified[x] = r
	}
	return r
}

// storeLocked decodes the put and passes its messages to the channels.
func (c *Cluster) storeLocked(t *topic, d queue.Draft) api.MessageID {
	at := ident.Position{Sequence: ident.Sequence(c.mu.sequence)}
	sealed := d.Clone()
	batch := sealed.Seal(at, 1, 0, time.Now().UnixNano())
	for _, m := range batch.Messages(at.Sequence, int(d.Count), nil) {
		c.mu.sequence++
		t.messages++
		t.bytes += uint64(len(m.Body))
		t.putLocked(c, &message{id: messageID(c.mu.sequence), sequence: m.Seq, timeNS: m.Time, deliverAt: m.DeliverAt, trace: m.Trace, header: m.Header, body: m.Body})
	}
	return messageID(uint64(at.Sequence) + 1)
}

func messageID(n uint64) (id api.MessageID) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], n)
	hex.Encode(id[:], b[:])
	return id
}

func (t *topic) putLocked(c *Cluster, m *message) {
	if len(t.channels) == 0 || t.paused {
		t.backlog = append(t.backlog, m)
		return
	}
	for _, ch := range t.channels {
		own := *m
		ch.putLocked(c, &own)
	}
}

// drainLocked passes the backlog to the channels, if there are any.
func (t *topic) drainLocked(c *Cluster) {
	backlog := t.backlog
	t.backlog = nil
	for _, m := range backlog {
		t.putLocked(c, m)
	}
}

func (c *Cluster) topicLocked(name string) *topic {
	t := c.mu.topics[name]
	if t == nil {
		t = &topic{name: name, channels: map[string]*channel{}}
		c.mu.topics[name] = t
	}
	return t
}

func (t *topic) channelLocked(c *Cluster, name string) *channel {
	ch := t.channels[name]
	if ch == nil {
		ch = newChannel(t.name, name)
		t.channels[name] = ch
		t.drainLocked(c)
	}
	return ch
}

// Subscribe implements api.Subscribers.
func (c *Cluster) Subscribe(_ context.Context, r api.SubscribeRequest) (api.Subscription, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return nil, outcome.ErrExiting
	}
	ch := c.topicLocked(r.Topic).channelLocked(c, r.Channel)
	if c.MaxConsumers > 0 && len(ch.consumers) >= c.MaxConsumers {
		return nil, fmt.Errorf("subscribing to %s: %w", r.Channel, outcome.ErrTooManyClients)
	}
	s := newSubscription(c, ch, r)
	ch.consumers = append(ch.consumers, s)
	return s, nil
}

var (
	_ api.Publisher   = (*Cluster)(nil)
	_ api.Subscribers = (*Cluster)(nil)
	_ api.Stats       = (*Cluster)(nil)
	_ api.Admin       = (*Cluster)(nil)
	_ api.Directory   = Directory{}
)
