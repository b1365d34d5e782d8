package console

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/health"
)

const (
	// maxWhere bounds the locations of an alarm or an event.
	maxWhere = 20
	// maxBehind is how many channels an overview names, each at least behindFrom behind, or without consumers.
	maxBehind  = 3
	behindFrom = 1.0
	// maxChanges bounds the events of an overview.
	maxChanges = 20
	// alarmsFor is how many checks in a row must find a fault before it becomes an event, unless the fault is unsafe.
	alarmsFor = 2
)

// alarms are the faults that this broker sees, by code.
type alarms struct {
	mu sync.Mutex
	of map[string]*standing
}

type standing struct {
	health.Alarm
	since  time.Time // the first check that found it
	checks int       // in a row
	noted  bool      // it is an event
}

// checkAlarms assesses the cluster, and records the beginning and the end of each fault as events.
func (c *Console) checkAlarms(now time.Time) {
	v := c.o.Cluster.View()
	c.noteContact(v, now)
	own, _ := c.own(c.o.Metrics.Totals(), now)
	report := health.Assess(v, nil, map[ident.Node]health.Own{c.self: own})
	c.alarms.mu.Lock()
	defer c.alarms.mu.Unlock()
	present := map[string]bool{}
	for _, a := range report.Alarms {
		present[a.Code] = true
		x := c.alarms.of[a.Code]
		if x == nil {
			x = &standing{since: now}
			c.alarms.of[a.Code] = x
		}
		if x.checks++; x.noted {
			a.State = max(a.State, x.State)
		} else if x.noted = a.State == health.Unsafe || x.checks >= alarmsFor; x.noted {
			c.o.Events.Add(events.Event{
				At: x.since, Kind: events.Alarm, Code: a.Code, State: a.State.String(), Text: a.Text, Do: a.Do, Broker: c.self,
				Where: slices.Clone(first(a.Where, maxWhere)),
			})
		}
		x.Alarm = a
	}
	for code, x := range c.alarms.of {
		if present[code] {
			continue
		}
		delete(c.alarms.of, code)
		if lasted := now.Sub(x.since); x.noted {
			c.o.Events.Add(events.Event{
				At: now, Kind: events.AlarmEnded, Code: code, State: health.Healthy.String(), Broker: c.self, Lasted: lasted,
				Text: fmt.Sprintf("over after %s: %s", lasted.Round(time.Second), x.Text),
			})
		}
	}
}

// Overview is the cluster in one answer.
func (c *Console) Overview(ctx context.Context) Overview {
	t := c.table(ctx)
	report := health.Assess(t.view, silent(t.missing), t.own())
	o := Overview{
		Cluster: t.view.Cluster, Self: c.self, Controller: t.view.Controller, TimeMS: time.Now().UnixMilli(),
		State: report.State, Summary: report.Summary, Cause: cause(t.view, report, health.Full(t.own())), Alarms: []alarm{},
		Unreachable: t.missing, Brokers: t.brokers(c.self), Topics: len(t.topics), Channels: len(t.channels), Behind: behind(t.channels),
	}
	o.Publishing.State, o.Publishing.Text = health.Publishing(t.view)
	c.alarms.mu.Lock()
	for _, a := range report.Alarms {
		x := alarm{Alarm: a, WhereCount: len(a.Where)}
		x.Where = first(a.Where, maxWhere)
		if known := c.alarms.of[a.Code]; known != nil {
			ms := known.since.UnixMilli()
			x.SinceMS = &ms
		}
		o.Alarms = append(o.Alarms, x)
	}
	c.alarms.mu.Unlock()
	o.count(t.view)
	o.sum(t)
	o.Changes = t.changes()
	if o.Reported = reported(o.Changes, report, time.Now()); o.Reported != "" {
		o.Cause = o.Reported
	}
	return o
}

// silent are the live brokers that gave no answer, in the form of package health.
func silent(missing []Unreachable) (out []string) {
	for _, m := range missing {
		if m.Reason != "dead" {
			out = append(out, fmt.Sprintf("%s: %s", m.Broker, m.Reason))
		}
	}
	return out
}

func (o *Overview) count(v api.ClusterView) {
	alive := health.Living(v)
	for i := range v.Topics {
		o.Partitions += len(v.Topics[i].Partitions)
		for j := range v.Topics[i].Partitions {
			p := &v.Topics[i].Partitions[j]
			if p.UnderReplicated {
				o.UnderReplicated++
			}
			switch health.Fault(p, alive) {
			case health.NoLeader:
				o.Leaderless++
			case health.BelowMinimum:
				o.BelowMinimum++
			}
		}
	}
}

func (o *Overview) sum(t *table) {
	for i := range t.channels {
		o.Depth += t.channels[i].Depth
		o.InFlight += t.channels[i].InFlight
		o.Deferred += t.channels[i].Deferred
	}
	for _, b := range o.Brokers {
		if b.Live == nil {
			continue
		}
		o.Connections += b.Connections
		o.Traffic.add(&b.Traffic)
		o.PutP99MS, o.SyncP99MS = worse(o.PutP99MS, b.Name, b.PutP99MS), worse(o.SyncP99MS, b.Name, b.SyncP99MS)
	}
}

func worse(w *worst, n ident.Node, v *float64) *worst {
	if v == nil || w != nil && w.Value >= *v {
		return w
	}
	return &worst{n, *v}
}

func behind(channels []Channel) []Behind {
	late := []Behind{}
	for i := range channels {
		c := &channels[i]
		if c.LagSeconds >= behindFrom || c.Depth > 0 && c.Clients == 0 { // returned messages have no lag
			late = append(late, Behind{*c, why(c)})
		}
	}
	slices.SortStableFunc(late, func(a, b Behind) int { return cmp.Compare(b.LagSeconds, a.LagSeconds) })
	return first(late, maxBehind)
}

// why returns the likely reason for a channel's lag.
func why(ch *Channel) string {
	switch {
	case ch.Paused:
		return "the channel is paused"
	case ch.Clients == 0:
		return "the channel has no consumers"
	case ch.Finishes != nil && *ch.Finishes == 0 && ch.InFlight > 0:
		return "its consumers hold messages and finish none"
	case ch.Finishes != nil && *ch.Finishes == 0:
		return "its consumers take no messages"
	}
	return "its consumers are slower than its producers were"
}

// reportedFor is how long the report of a broker about its own fault explains alarms: a persistent fault is reported every
// minute.
const reportedFor = 2 * time.Minute

// reported is the latest report of a broker about its own fault that explains an alarm, or "": a replica that refuses its leader
// does not catch up, and a broker whose disk hangs need not be started.
func reported(changes []Event, report health.Report, now time.Time) string {
	explains := map[string]string{health.UnderReplicated: events.ReplicaAlarm, health.BrokerHangs: events.StoreFailed}
	for _, a := range report.Alarms {
		for _, e := range changes {
			late := now.UnixMilli()-e.TimeMS > reportedFor.Milliseconds()
			if e.Code != "" && e.Code == explains[a.Code] && !late && slices.ContainsFunc(e.Where, func(w string) bool { return slices.Contains(a.Where, w) }) {
				return e.Text
			}
		}
	}
	return ""
}

// roots are the codes of alarms that explain others, the most fundamental first.
var roots = []string{
	health.NoBrokers, health.MetadataSilent, health.BrokerHangs, health.BrokerUnreachable, health.BrokerDead, health.LowSpace, health.Damaged,
	health.StatisticsSilent, health.LeavingStuck, health.NoController,
}

// cause is the fault that explains the others, "" if the cluster is healthy. full: etcd refuses all writes, so a
// broker whose registration has ended cannot register again.
func cause(v api.ClusterView, report health.Report, full bool) string {
	if report.State == health.Healthy {
		return ""
	}
	order := roots
	if full {
		order = slices.Concat([]string{health.MetadataFull}, roots)
	}
	for _, code := range order {
		i := slices.IndexFunc(report.Alarms, func(a health.Alarm) bool { return a.Code == code })
		if i < 0 {
			continue
		}
		a := report.Alarms[i]
		named := len(a.Where) > 0 && strings.Contains(a.Text, a.Where[0])
		if !named && (code == health.BrokerDead || code == health.BrokerHangs || code == health.BrokerUnreachable) {
			return a.Text + ": " + strings.Join(a.Where, ", ")
		}
		return a.Text
	}
	missing := map[ident.Node]int{}
	for i := range v.Topics {
		for _, p := range v.Topics[i].Partitions {
			for _, n := range p.Replicas {
				if !slices.Contains(p.ISR, n) {
					missing[n]++
				}
			}
		}
	}
	if len(missing) == 0 {
		return report.Alarms[0].Text
	}
	most := slices.MinFunc(slices.Sorted(maps.Keys(missing)), func(a, b ident.Node) int { return cmp.Compare(missing[b], missing[a]) })
	replicas := "1 replica on %[2]s is"
	if missing[most] > 1 {
		replicas = "%[1]d replicas on %[2]s are"
	}
	return fmt.Sprintf(replicas+" not in sync: the broker is catching up, or its disk or its network is slow", missing[most], most)
}
