package coordinator

import (
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
)

// history is the part of the previous metadata that events need. The goroutine of the watch owns it.
type history struct {
	partitions map[ident.Partition]metadata.PartitionState
	live       map[ident.Node]ident.Incarnation
	topics     map[string]ident.TopicID
	trash      map[ident.TopicID]int64 // the revision of the deletion of each topic in the trash
}

// noteHistory records a change of the metadata as events. The initial snapshot produces none.
func (b *Broker) noteHistory(touched catalog.Touched) {
	if b.o.Events == nil {
		return
	}
	h := &b.history
	first := h.partitions == nil
	if first {
		*h = history{
			partitions: map[ident.Partition]metadata.PartitionState{}, live: map[ident.Node]ident.Incarnation{},
			topics: map[string]ident.TopicID{}, trash: map[ident.TopicID]int64{},
		}
	}
	for _, n := range touched.Live {
		r, ok := b.catalog.LiveNode(n)
		h.broker(b.o.Events, n, r.Incarnation, ok, first)
	}
	for _, name := range touched.Topics {
		s, ok := b.catalog.Record(name)
		h.topic(b.o.Events, name, s, ok && !s.Deleted, first)
	}
	for _, id := range touched.Trash { // after the topics, which need the previous state
		delete(h.trash, id)
		if t, ok := b.catalog.Trashed(id); ok {
			h.trash[id] = t.Created
		}
	}
	for _, p := range touched.Partitions {
		s, ok := b.catalog.Partition(p)
		old, known := h.partitions[p]
		if !ok {
			delete(h.partitions, p)
			continue
		}
		h.partitions[p] = s
		if name, ok := b.catalog.Name(p.Topic); ok && known && h.trash[p.Topic] == 0 {
			notePartition(b.o.Events, name, p, old, s)
		}
	}
}

func (h *history) broker(to *events.Recorder, n ident.Node, run ident.Incarnation, there, first bool) {
	before, was := h.live[n]
	if !there {
		delete(h.live, n)
		if was {
			to.Add(events.Event{Kind: events.BrokerDown, Broker: n, Run: before, State: "degraded", OfCluster: true, Text: fmt.Sprintf("broker %s went offline: it stopped, or died", n)})
		}
		return
	}
	h.live[n] = run
	if before != run && !first {
		to.Add(events.Event{Kind: events.BrokerUp, Broker: n, Run: run, State: "healthy", OfCluster: true, Text: fmt.Sprintf("broker %s has registered", n)})
	}
}

// topic records that a topic was created, deleted or undeleted. The revision of the deletion distinguishes repeated ones.
func (h *history) topic(to *events.Recorder, name string, s metadata.TopicState, there, first bool) {
	before, was := h.topics[name]
	e := events.Event{Kind: events.Topic, Topic: name, ID: ident.Partition{Topic: s.ID}, State: "healthy", OfCluster: true}
	deletion := h.trash[s.ID]
	switch {
	case !there:
		delete(h.topics, name)
		if !was {
			return
		}
		e.ID.Topic, e.Revision, e.Code, e.Text = before, s.Revision, "deleted", "topic "+name+" was deleted"
	case deletion != 0:
		h.topics[name] = s.ID
		e.Revision, e.Code, e.Text = deletion, "undeleted", "topic "+name+" was undeleted"
	default:
		h.topics[name] = s.ID
		if before == s.ID || first {
			return
		}
		e.Code, e.Text = "created", "topic "+name+" was created"
	}
	to.Add(e)
}

// notePartition records the difference between two states of a partition's key.
func notePartition(to *events.Recorder, topic string, p ident.Partition, old, now metadata.PartitionState) {
	e := events.Event{Topic: topic, ID: p, Epoch: now.Epoch, Members: now.ISR, Revision: now.Revision, OfCluster: true, State: "healthy"}
	if old.Epoch != now.Epoch || old.Leader != now.Leader {
		elected := e
		elected.Kind, elected.Leader, elected.Before = events.Election, now.Leader, old.Leader
		to.Add(elected)
	}
	e.Left, e.Joined = missing(old.ISR, now.ISR), missing(now.ISR, old.ISR)
	if len(e.Left)+len(e.Joined) == 0 {
		return
	}
	if now.UnderReplicated() {
		e.State = "degraded"
	}
	e.Kind = events.InSync
	to.Add(e)
}

func missing(a, b []ident.Member) (nodes []ident.Node) {
	for _, m := range a {
		if !ident.HasMember(b, m.Node) {
			nodes = append(nodes, m.Node)
		}
	}
	return nodes
}
