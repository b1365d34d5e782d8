package chaos

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge/record"
)

const (
	stepLimit = 20 * time.Second // one step of a trace
	reader    = "reader"
)

// stage is three brokers with one partition and an etcd outside, on which a trace
// is played step by step: the test decides when a replica's messages arrive, and
// which registrations end.
type stage struct {
	*cluster
	wires
	store metadata.Store
	keys  metadata.Keys
	puts  []*put
}

// newStage starts the brokers; the first one that it gives leads, and all of them
// hold one message.
func newStage(t *testing.T) (s *stage, leader, second, third *broker) {
	s = preparedStage(t)
	leader, second, third = s.open()
	return s, leader, second, third
}

// preparedStage is a stage whose brokers have not been started.
func preparedStage(t *testing.T) *stage {
	Inside(t)
	s := &stage{cluster: prepared(t, 3, true), keys: metadata.Keys{Cluster: "lockstep"}}
	s.wires = s.wired()
	store, err := metadata.DialEtcd(context.Background(), metadata.Config{Endpoints: []string{address(etcdLane, s.etcd.number()) + ":4154"}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	s.store = store
	return s
}

func (s *stage) open() (leader, second, third *broker) {
	s.begin()
	s.post("/topic/create", url.Values{"topic": {topic}})
	s.post("/channel/create", url.Values{"topic": {topic}, "channel": {reader}, "from": {"earliest"}})
	s.step("all are in sync", s.whole)
	at := slices.IndexFunc(s.brokers, s.leads)
	leader, second, third = s.brokers[at], s.brokers[(at+1)%3], s.brokers[(at+2)%3]
	s.acknowledged(s.put(leader, "first"))
	return leader, second, third
}

// step waits for what the trace says happens next.
func (s *stage) step(what string, happened func() bool) {
	s.t.Helper()
	took, ok := within(stepLimit, happened)
	require.True(s.t, ok, "not within %s: %s", took, what)
	s.t.Logf("%s %s", time.Now().Format("15:04:05.000"), what)
}

// said waits until one broker's replica has said such a thing to another's.
func (s *stage) said(what string, from, to *broker, such func(message) bool) {
	s.t.Helper()
	s.step(fmt.Sprintf("%s says to %s: %s", from.name, to.name, what), func() bool {
		return slices.ContainsFunc(s.sent(from, to), such)
	})
}

// holds is the acknowledgement of so many messages.
func holds(messages ident.Sequence) func(message) bool {
	return func(m message) bool { return m.Kind == replica.MsgAppendAck && m.Durable.Sequence == messages }
}

// put lets a client put a body at a broker, once.
func (s *stage) put(at *broker, body string) *put {
	p := &put{Put: judge.Put{Producer: len(s.puts), Bodies: []string{body}}, body: body, answered: make(chan struct{})}
	s.puts = append(s.puts, p)
	go func() { // ends with the answer, at the latest when the broker is killed
		conns := clusters.NewProducers(config())
		defer conns.Stop()
		sent := record.Now()
		p.err = conns.At(at.tcp()).Publish(topic, []byte(body))
		p.Attempts = []judge.Attempt{record.Attempt(sent, clusters.Classify(p.err))}
		close(p.answered)
	}()
	return p
}

// put is one put and, when it is answered, the answer.
type put struct {
	judge.Put
	body     string
	err      error
	answered chan struct{}
}

func (p *put) isAnswered() bool {
	select {
	case <-p.answered:
		return true
	default:
		return false
	}
}

// acknowledged waits until a put is answered OK.
func (s *stage) acknowledged(p *put) {
	s.t.Helper()
	s.step(p.body+" is answered", p.isAnswered)
	require.NoError(s.t, p.err, p.body)
}

// finish lets everything pass, starts the killed brokers, and judges the answers to
// clients and the contents of the disks.
func (s *stage) finish() {
	s.t.Helper()
	var puts []*judge.Put
	for ends := range s.wires {
		s.release(ends[0], ends[1])
	}
	for _, b := range s.brokers {
		s.start(b)
	}
	for _, b := range s.brokers {
		s.ready(b)
	}
	s.acknowledged(s.put(s.brokers[0], "last")) // what came before is decided
	for _, p := range s.puts {
		s.step(p.body+" is answered", p.isAnswered)
		puts = append(puts, &p.Put)
	}
	sink := consume(s.t, s.brokers, reader)
	s.step("all is delivered", func() bool { n, known := s.left(reader); return known && n == 0 })
	report := judge.Judge(record.History(topic, puts, sink.all(), reader))
	require.Empty(s.t, report.Violations, report)
	s.step("all are in sync", s.whole)
	require.NoError(s.t, s.check())
}

// state is the partition's key.
func (s *stage) state() metadata.PartitionState {
	ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
	defer cancel()
	all, _, err := s.store.List(ctx, s.keys.Partitions())
	require.NoError(s.t, err)
	require.Len(s.t, all, 1)
	state, err := metadata.DecodePartition(all[0])
	require.NoError(s.t, err)
	return state
}

func (s *stage) leads(b *broker) bool { return string(s.state().Leader) == b.name }

// withoutEtcd cuts a broker off from etcd: it does not learn that it is deposed.
func (s *stage) withoutEtcd(b *broker) []cut {
	return between([]int{b.number()}, []int{s.etcd.number()}, []lane{etcdLane}, drop)
}

// member reports whether a broker is in the in-sync set.
func (s *stage) member(b *broker) bool {
	return slices.ContainsFunc(s.state().ISR, func(m ident.Member) bool { return string(m.Node) == b.name })
}

// revoke ends registrations, as if their time were over.
func (s *stage) revoke(brokers ...*broker) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stepLimit)
	defer cancel()
	for _, b := range brokers {
		e, err := s.store.Get(ctx, s.keys.Live(ident.Node(b.name)))
		if errors.Is(err, metadata.ErrNotFound) {
			continue // its time was over
		}
		require.NoError(s.t, err)
		require.NoError(s.t, s.store.Revoke(ctx, e.Lease))
	}
}
