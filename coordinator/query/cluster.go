package query

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

const endsTimeout = 300 * time.Millisecond

// Cluster is the answer to GET /v1/cluster. While there is no controller, it waits up to 1.5 s for one. It queries the
// leaders for the ends of their partitions; ends without an answer within 300 ms are unknown.
func (d *Directory) Cluster() api.ClusterView {
	ctx, cancel := context.WithTimeout(d.o.Context, lookupWait)
	_ = d.o.Catalog.Await(ctx, func() bool { return d.o.Catalog.Controller() != "" }) // else it is shown as ""
	cancel()
	return d.view(d.topicViews(d.collectEnds()))
}

// View is Cluster without waiting and without querying other brokers: the ends are 0, and only this broker's damaged
// ranges are listed. The topics are shared, so the caller must not change them. They are rebuilt only after a change,
// because an open console reads them every second.
func (d *Directory) View() api.ClusterView {
	own := d.own()
	if len(own.damaged) > 0 || d.o.Unheard() > 0 { // without contact to the metadata, leaders may change unnoticed
		return d.view(d.topicViews(own))
	}
	return d.view(d.unchanged())
}

// unchanged are the topics without damage, cached until the next change of the catalog.
func (d *Directory) unchanged() []api.TopicView {
	t := &d.topics
	t.Lock()
	defer t.Unlock()
	if t.views != nil {
		select {
		case <-t.until:
		default:
			return t.views
		}
	}
	t.until = d.o.Catalog.Changed()
	t.views = d.topicViews(reports{})
	return t.views
}

func (d *Directory) own() reports {
	own := reports{damaged: map[ident.Partition][]api.DamageView{}}
	for _, place := range d.inspector.damaged() {
		own.damaged[place.Partition] = append(own.damaged[place.Partition], damageView(place, d.o.Self.Name))
	}
	return own
}

// Members is View without topics and counters: the time that it takes does not depend on the number of topics.
func (d *Directory) Members() api.ClusterView {
	v := api.ClusterView{
		Cluster: d.o.Cluster, Controller: d.o.Catalog.Controller(), Self: d.o.Self.Name, Level: d.o.Catalog.Cluster().Level,
		MetadataUnheardMS: d.o.Unheard().Milliseconds(), Topics: []api.TopicView{},
	}
	for _, n := range d.o.Catalog.Nodes() {
		v.Brokers = append(v.Brokers, d.brokerView(n))
	}
	return v
}

// TopicView is one topic of View.
func (d *Directory) TopicView(name string) (api.TopicView, bool) {
	t, ok := d.o.Catalog.Topic(name)
	if !ok {
		return api.TopicView{}, false
	}
	return d.topicView(name, t, d.own()), true
}

func (d *Directory) view(topics []api.TopicView) api.ClusterView {
	v := d.Members()
	v.Counters, v.Topics = d.inspector.counters(), topics
	return v
}

func (d *Directory) topicViews(reported reports) []api.TopicView {
	names := d.o.Catalog.Topics()
	views := make([]api.TopicView, 0, len(names))
	for _, name := range names {
		if t, ok := d.o.Catalog.Topic(name); ok {
			views = append(views, d.topicView(name, t, reported))
		}
	}
	return views
}

func (d *Directory) topicView(name string, t metadata.TopicState, reported reports) api.TopicView {
	v := api.TopicView{Topic: name, ID: t.ID, ReplicationFactor: t.ReplicationFactor, MinInSync: t.MinInSync, Durability: string(t.Durability), Ordered: t.Ordered,
		Effective: t.Options.Effective(), Owner: t.Owner}
	for n := range t.Partitions {
		v.Partitions = append(v.Partitions, d.partitionView(ident.Partition{Topic: t.ID, Number: uint16(n)}, reported))
	}
	return v
}

func (d *Directory) brokerView(n metadata.NodeState) api.BrokerView {
	r, ok := d.o.Catalog.LiveNode(n.Name)
	leaving, drain, https := n.Leaving, n.Drain, ""
	if ok {
		n = r.NodeState
	}
	if n.HTTPSPort != 0 {
		https = net.JoinHostPort(n.BroadcastAddress, strconv.Itoa(n.HTTPSPort))
	}
	return api.BrokerView{
		Leaving: leaving, Drain: string(drain),
		Name: n.Name, Alive: ok && d.o.Peers.Up(n.Name), Incarnation: r.Incarnation,
		TCPAddress:  fmt.Sprintf("%s:%d", n.BroadcastAddress, n.TCPPort),
		HTTPAddress: address(n), HTTPSAddress: https, RPCAddress: n.RPCAddress, Zone: n.Zone, Version: n.Version, Build: n.Build, Level: n.Level,
		LowSpace: d.o.LowSpace(n.Name), Hangs: d.o.Hangs(n.Name), Silent: !ok && d.o.Unanswered(n.Name),
	}
}

func (d *Directory) partitionView(p ident.Partition, reported reports) api.PartitionView {
	s, _ := d.o.Catalog.Partition(p)
	v := api.PartitionView{Partition: int(p.Number), Epoch: s.Epoch, Replicas: s.Replicas,
		UnderReplicated: s.UnderReplicated(), MinInSync: s.MinInSync, Target: s.Target}
	for _, m := range s.ISR {
		v.ISR = append(v.ISR, m.Node)
	}
	slices.Sort(v.ISR)
	if l, ok := d.Leader(p); ok {
		v.Leader = l.Node
	}
	v.Damaged = reported.damaged[p]
	if e, ok := reported.ends[p]; ok {
		v.CommittedOffset, v.CommittedSequence = e.CommittedOffset, e.CommittedSequence
		v.EndOffset = e.EndOffset
	} else {
		v.EndsUnknown = reported.ends != nil // View asks for none
	}
	return v
}

type reports struct {
	ends    map[ident.Partition]calls.PartitionEnd
	starts  map[ident.Partition]calls.PartitionStart
	damaged map[ident.Partition][]api.DamageView
}

// collectEnds queries all live brokers concurrently, and omits those that do not answer in time.
func (d *Directory) collectEnds() reports {
	ctx, cancel := context.WithTimeout(d.o.Context, endsTimeout)
	defer cancel()
	out := reports{ends: map[ident.Partition]calls.PartitionEnd{}, starts: map[ident.Partition]calls.PartitionStart{}, damaged: map[ident.Partition][]api.DamageView{}}
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, r := range d.o.Catalog.LiveNodes() {
		if !d.o.Peers.Up(r.Name) {
			continue
		}
		asked.Go(func() {
			resp, err := calls.Ends.Ask(ctx, d.o.Caller, r.Name, calls.None{})
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, e := range resp.Partitions {
				out.ends[e.Partition] = e
			}
			for _, s := range resp.Starts {
				out.starts[s.Partition] = s
			}
			for _, place := range resp.Damaged {
				out.damaged[place.Partition] = append(out.damaged[place.Partition], damageView(place, r.Name))
			}
		})
	}
	asked.Wait()
	return out
}

// Damage lists the damaged ranges of the replicas here.
func (d *Directory) Damage() (out []api.PlacedDamage) {
	for _, place := range d.inspector.damaged() {
		if name, ok := d.o.Catalog.Name(place.Partition.Topic); ok {
			out = append(out, api.PlacedDamage{Topic: name, Partition: int(place.Number), Damage: damageView(place, d.o.Self.Name)})
		}
	}
	return out
}

func damageView(d calls.DamagedPlace, n ident.Node) api.DamageView {
	return api.DamageView{Node: n, From: d.From, To: d.To, FirstSequence: d.FirstSequence, EndSequence: d.EndSequence}
}

// Trash lists the deleted topics that can be undeleted, oldest deletion first. It counts the messages and bytes of the
// partitions whose leaders answer within 300 ms.
func (d *Directory) Trash() []api.TrashedTopic {
	list := d.o.Catalog.Trash()
	if len(list) == 0 {
		return nil
	}
	reported, clock := d.collectEnds(), d.o.Catalog.ClockMS()
	out := make([]api.TrashedTopic, len(list))
	for i, t := range list {
		x := api.TrashedTopic{
			Topic: t.Name, ID: t.Topic.ID, DeletedAtMS: t.DeletedAtMS, By: t.By, Partitions: t.Topic.Partitions,
			Channels: len(d.o.Catalog.Channels(t.Topic.ID)), Purging: t.Purging, RemainingMS: t.GraceMS,
		}
		if t.SeenMS != 0 {
			x.RemainingMS = min(max(t.GraceMS-(clock-t.SeenMS), 0), t.GraceMS)
		}
		x.UntilMS = time.Now().UnixMilli() + x.RemainingMS
		for n := range t.Topic.Span() {
			p := ident.Partition{Topic: t.Topic.ID, Number: uint16(n)}
			end, answered := reported.ends[p]
			start := reported.starts[p]
			x.Incomplete = x.Incomplete || !answered
			x.Messages += int64(end.CommittedSequence - start.StartSequence)
			x.Bytes += int64(end.CommittedOffset - start.StartOffset)
		}
		out[i] = x
	}
	return out
}
