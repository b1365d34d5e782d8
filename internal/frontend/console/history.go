package console

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/health"
)

const (
	// MaxEvents bounds the events of one answer.
	MaxEvents = 1000
	// askedEvents bounds the events that one broker sends. Equal events of several partitions become one.
	askedEvents = 5000
	// sameChange is how far apart changes of several partitions may be and still count as one event.
	sameChange = 2 * time.Second
	// sameAlarm is how far apart the times may be at which brokers notice one fault.
	sameAlarm = 30 * time.Second
)

// EventsOf selects events.
type EventsOf struct {
	SinceMS   int64      `json:"since_ms,omitempty"`
	Kinds     []string   `json:"kinds,omitempty"` // none = all
	Topic     string     `json:"topic,omitempty"`
	Partition *uint16    `json:"partition,omitempty"` // of the topic; its elections and changes of its in-sync set
	Broker    ident.Node `json:"broker,omitempty"`
	Limit     int        `json:"-"`
	Audit     bool       `json:"audit,omitempty"` // administrative actions too
}

type noted struct {
	Events   []events.Event `json:"events"`
	Audit    []guard.Entry  `json:"audit"`
	Complete bool           `json:"complete"`
}

func (c *Console) ownEvents(q question) noted {
	wanted := func(kind string) bool { return len(q.Kinds) == 0 || slices.Contains(q.Kinds, kind) }
	since := time.UnixMilli(q.SinceMS)
	var n noted
	n.Events, n.Complete = c.o.Events.Since(since, askedEvents, func(e *events.Event) bool {
		switch {
		case q.WithoutClusterMS != 0 && e.OfCluster && e.At.UnixMilli() >= q.WithoutClusterMS:
			return false
		case !wanted(e.Kind), q.Topic != "" && e.Topic != q.Topic, q.Broker != "" && !slices.Contains(subjects(e), q.Broker):
			return false
		case q.Partition != nil && (!e.OfPartition() || e.ID.Number != *q.Partition):
			return false
		}
		return true
	})
	if !q.Audit || c.o.Audit == nil || !wanted(events.Audit) || q.Partition != nil {
		return n
	}
	for _, e := range c.o.Audit.Entries() {
		about, _ := url.ParseQuery(e.Detail) // of a command: nothing
		if e.Time.After(since) && (q.Topic == "" || about.Get("topic") == q.Topic) && (q.Broker == "" || about.Get("node") == string(q.Broker)) {
			n.Audit = append(n.Audit, e)
		}
	}
	return n
}

func subjects(e *events.Event) []ident.Node {
	switch e.Kind {
	case events.Election:
		return without(e.Leader, e.Before)
	case events.InSync:
		return slices.Concat(e.Left, e.Joined)
	case events.Alarm, events.AlarmEnded:
		return nil // Broker has noticed it
	}
	return without(e.Broker)
}

func without(nodes ...ident.Node) []ident.Node {
	return slices.DeleteFunc(nodes, func(n ident.Node) bool { return n == "" })
}

// Events merges the events of all brokers, the newest first.
func (c *Console) Events(ctx context.Context, of EventsOf) Events {
	v := c.o.Cluster.Members()
	answers, missing := askAll[noted](ctx, c, v, question{What: askEvents, EventsOf: of, WithoutClusterMS: c.hasClusterEventsFrom(v)}, "")
	out := Events{Unreachable: missing, Complete: true}
	list := []*joined{}
	seen := map[any]*joined{}
	for _, a := range answers {
		out.Complete = out.Complete && a.answer.Complete
		for i := range a.answer.Events {
			e := &a.answer.Events[i]
			key := e.Key()
			if x := seen[key]; x != nil {
				x.by = append(x.by, a.broker)
				continue
			}
			x := &joined{e: e, by: []ident.Node{a.broker}, count: 1}
			if key != nil {
				seen[key] = x
			}
			list = append(list, x)
		}
	}
	slices.SortStableFunc(list, func(a, b *joined) int { return a.e.At.Compare(b.e.At) })
	for _, x := range fold(list) {
		out.Events = append(out.Events, x.event())
	}
	for _, a := range answers {
		for i := range a.answer.Audit {
			out.Events = append(out.Events, auditEvent(a.broker, &a.answer.Audit[i]))
		}
	}
	slices.SortStableFunc(out.Events, func(a, b Event) int { return int(b.TimeMS - a.TimeMS) })
	if of.Limit > 0 && len(out.Events) > of.Limit {
		out.Complete = false
	} else {
		of.Limit = len(out.Events)
	}
	out.Events = first(out.Events, of.Limit)
	return out
}

// clocksDiffer is how far the clocks of two brokers may differ, so that no event from before this broker's contact with
// the metadata is left out.
const clocksDiffer = time.Minute

// hasClusterEventsFrom is the time in milliseconds since which this broker has all events of the metadata. The other
// brokers need not send theirs, which are very many after the death of a broker with many leaders. 0: it requests all,
// because the metadata does not answer.
func (c *Console) hasClusterEventsFrom(v api.ClusterView) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connected.IsZero() || v.MetadataUnheardMS > 0 {
		return 0
	}
	return c.connected.Add(clocksDiffer).UnixMilli()
}

func (c *Console) noteContact(v api.ClusterView, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case v.MetadataUnheardMS > 0:
		c.connected = time.Time{}
	case c.connected.IsZero():
		c.connected = now
	}
}

// joined is one event with the brokers that saw it, or the same change of several partitions.
type joined struct {
	e     *events.Event
	by    []ident.Node
	count int
	where []string
}

// fold merges the same change of several partitions at one time, and one fault that several brokers noticed. The events
// of list are sorted by time.
func fold(list []*joined) (out []*joined) {
	open := map[string]*joined{}
	for _, x := range list {
		group, within := x.group()
		if before := open[group]; group != "" && before != nil && x.e.At.Sub(before.e.At) < within {
			before.take(x)
			continue
		}
		if x.e.OfPartition() {
			x.where = []string{placeOf(x.e.Topic, int(x.e.ID.Number))}
		}
		open[group] = x
		out = append(out, x)
	}
	return out
}

// group is equal for events that may be merged; "" for an event that is never merged.
func (x *joined) group() (group string, within time.Duration) {
	switch x.e.Kind {
	case events.Election:
		return fmt.Sprint(x.e.Kind, x.e.Leader, " ", x.e.Before), sameChange
	case events.InSync:
		return fmt.Sprint(x.e.Kind, x.e.Left, x.e.Joined), sameChange
	case events.Rollback, events.Truncation:
		return fmt.Sprint(x.e.Kind, x.e.Broker), sameChange
	case events.Alarm, events.AlarmEnded:
		return fmt.Sprint(x.e.Kind, x.e.Code), sameAlarm
	}
	return "", 0
}

func (x *joined) take(o *joined) {
	for _, n := range o.by {
		if !slices.Contains(x.by, n) {
			x.by = append(x.by, n)
		}
	}
	if !o.e.OfPartition() {
		return
	}
	x.count += o.count
	if len(x.where) < maxWhere {
		x.where = append(x.where, placeOf(o.e.Topic, int(o.e.ID.Number)))
	}
}

func (x *joined) event() Event {
	e := x.e
	slices.Sort(x.by)
	out := Event{
		TimeMS: e.At.UnixMilli(), Kind: e.Kind, Text: e.Sentence(x.count), State: e.State, Brokers: first(subjects(e), maxWhere), ReportedBy: x.by,
		Topic: e.Topic, Partition: -1, Where: x.where, Count: x.count, Code: e.Code, Do: e.Do,
	}
	if len(e.Where) > 0 {
		out.Where = e.Where
	}
	if !e.OfPartition() {
		return out
	}
	if x.count > 1 {
		out.Topic = ""
		return out
	}
	out.Partition, out.Epoch = int(e.ID.Number), e.Epoch
	for _, m := range e.Members {
		out.InSync = append(out.InSync, m.Node)
	}
	return out
}

func auditEvent(n ident.Node, a *guard.Entry) Event {
	state := health.Healthy
	if a.Result != guard.ResultOK {
		state = health.Degraded
	}
	text := AuditSentence(a)
	if a.Omitted > 0 {
		text += fmt.Sprintf("; %d refused attempts before it are not listed", a.Omitted)
	}
	about, _ := url.ParseQuery(a.Detail)
	return Event{
		Topic: about.Get("topic"), TimeMS: a.Time.UnixMilli(), Kind: events.Audit, Text: text, State: state.String(), Brokers: []ident.Node{n}, ReportedBy: []ident.Node{n},
		Partition: -1, Count: 1, Identity: a.Identity, Action: strings.TrimSpace(a.Action + " " + a.Detail), Remote: a.Remote, Result: a.Result,
	}
}
