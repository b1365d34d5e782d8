package coordinator

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// recoverWait bounds the question to all brokers what they hold.
const recoverWait = 2 * time.Second

// Remains is what there is of a partition, for the decision whether to go on
// without its in-sync set.
type Remains struct {
	Topic     string      `json:"topic"`
	Partition int         `json:"partition"`
	Leader    ident.Node  `json:"leader"` // "" if nobody leads
	Epoch     ident.Epoch `json:"epoch"`
	InSync    []Member    `json:"in_sync"`
	Replicas  []Holding   `json:"replicas"`
	// Outdated: the metadata is older than a replica, which knows of a later epoch. It
	// was restored from a backup, and what it says of the in-sync set may be untrue.
	Outdated bool `json:"outdated,omitempty"`
	// Refused is why an unclean recovery is not possible, or not needed; "" = it is
	// the only way.
	Refused string `json:"refused,omitempty"`

	id    ident.Partition
	state meta.PartitionState
	runs  map[ident.Node]ident.Incarnation // of all brokers concerned, when they were asked
}

// Member is one of the in-sync set: everything acknowledged was on each of them.
type Member struct {
	ident.Member
	// State is "here", "runs with another disk" or "does not answer".
	State string `json:"state"`
}

// Holding is what a replica that answers has on its disk.
type Holding struct {
	Node      ident.Node     `json:"node"`
	Store     ident.StoreID  `json:"store"`
	Epoch     ident.Epoch    `json:"epoch"`
	Committed ident.Sequence `json:"committed_sequence"` // messages known to be committed: the least that there were
	End       ident.Sequence `json:"end_sequence"`       // messages there
}

// The states of a Member.
const (
	memberHere    = "here"
	memberReplace = "runs with another disk"
	memberSilent  = "does not answer"
)

// Remains asks all replicas of a partition what they hold. Errors wrap
// edge.ErrTopicNotFound, edge.ErrInvalid and edge.ErrUnavailable.
func (b *Broker) Remains(ctx context.Context, topic string, partition int) (Remains, error) {
	r := Remains{Topic: topic, Partition: partition, InSync: []Member{}, Replicas: []Holding{}, runs: map[ident.Node]ident.Incarnation{}}
	t, ok := b.catalog.topic(topic)
	if !ok {
		return r, edge.ErrTopicNotFound
	}
	if partition < 0 || partition >= t.Partitions {
		return r, fmt.Errorf("%w: partition must be 0 to %d", edge.ErrInvalid, t.Partitions-1)
	}
	r.id = ident.Partition{Topic: t.ID, Number: uint16(partition)}
	e, err := b.meta.Get(ctx, b.keys.Partition(r.id))
	if err == nil {
		r.state, err = meta.DecodePartition(e)
	}
	if err != nil {
		return r, fmt.Errorf("%w: %w", edge.ErrUnavailable, err)
	}
	r.Epoch = r.state.Epoch
	if l, ok := b.Leader(r.id); ok {
		r.Leader = l.Node
	}
	b.collectHoldings(ctx, &r)
	r.judge()
	return r, nil
}

// collectHoldings asks the brokers that are registered; who does not answer in
// time is missing from the answer.
func (b *Broker) collectHoldings(ctx context.Context, r *Remains) {
	ctx, cancel := context.WithTimeout(ctx, recoverWait)
	defer cancel()
	nodes := r.state.Replicas
	for _, n := range nodes {
		if live, ok := b.catalog.liveNode(n); ok {
			r.runs[n] = live.Incarnation
		}
	}
	answers := make([]*Digest, len(nodes))
	parallel(len(nodes), transactions, func(i int) {
		var d Digest
		beyond := DigestRequest{Topic: r.Topic, Partition: r.id.Number, From: math.MaxInt64} // its ends, no batches
		if err := b.call(ctx, nodes[i], methodDigest, beyond, &d); err == nil {
			answers[i] = &d
		}
	})
	for _, d := range answers {
		if d != nil {
			r.Replicas = append(r.Replicas, Holding{Node: d.Node, Store: d.Store, Epoch: d.Epoch, Committed: d.CommittedSequence, End: d.EndSequence})
		}
	}
}

// judge says what became of the in-sync set, and whether it can be waited for.
func (r *Remains) judge() {
	for _, m := range r.state.ISR {
		state := memberSilent
		if h, ok := r.holding(m.Node); ok {
			state = memberReplace
			if h.Store == m.Store {
				state = memberHere
			}
		}
		r.InSync = append(r.InSync, Member{Member: m, State: state})
		switch _, runs := r.runs[m.Node]; {
		case r.Refused != "":
		case state == memberHere:
			r.Refused = fmt.Sprintf("%s is in sync and runs: it holds everything and leads as soon as enough replicas are there", m.Node)
		case state == memberSilent && runs:
			r.Refused = fmt.Sprintf("%s is in sync and registered, but does not answer: ask again, or stop it", m.Node)
		}
	}
	if r.Leader != "" {
		r.Refused = fmt.Sprintf("%s leads: nothing is to be recovered", r.Leader)
	}
	if r.newest() > r.Epoch { // whoever is named as leader, or in sync, cannot lead in an epoch that is over
		r.Outdated, r.Leader, r.Refused = true, "", ""
	}
	if r.Refused == "" && len(r.Replicas) == 0 {
		r.Refused = "no replica answers"
	}
}

// newest is the highest epoch that a replica knows of.
func (r *Remains) newest() (e ident.Epoch) {
	for _, h := range r.Replicas {
		e = max(e, h.Epoch)
	}
	return e
}

func (r *Remains) holding(n ident.Node) (Holding, bool) {
	i := slices.IndexFunc(r.Replicas, func(h Holding) bool { return h.Node == n })
	if i < 0 {
		return Holding{}, false
	}
	return r.Replicas[i], true
}

// audit is the record of an unclean recovery.
type audit struct {
	V      int                 `json:"v"`
	At     time.Time           `json:"at"`
	By     ident.Node          `json:"by"` // the broker that was asked
	From   Holding             `json:"from"`
	Before meta.PartitionState `json:"before"`
	Remains
}

// Recover makes one replica the whole in-sync set of a partition whose in-sync
// set is lost: what was acknowledged and is not on it is gone for good. The
// minimum is 1 until the controller finds enough replicas in sync to raise it.
// Nothing else in a cluster elects uncleanly. The transaction holds only if no
// member of the old set was started, or ended, since it was asked. Where the
// metadata is outdated it names the leader, too, in an epoch that is new to all.
func (b *Broker) Recover(ctx context.Context, topic string, partition int, from ident.Node) (Remains, error) {
	r, err := b.Remains(ctx, topic, partition)
	if err != nil {
		return r, err
	}
	if r.Refused != "" {
		return r, fmt.Errorf("%w: %s", edge.ErrInvalid, r.Refused)
	}
	h, ok := r.holding(from)
	if !ok {
		return r, fmt.Errorf("%w: %q does not answer with a replica of it", edge.ErrInvalid, from)
	}
	next := r.state.Clone()
	next.V, next.ISR, next.MinInSync = meta.Version, []ident.Member{{Node: h.Node, Store: h.Store}}, 1
	if r.Outdated {
		next.Epoch, next.Leader, next.LeaderIncarnation = r.newest()+1, from, r.runs[from]
	}
	key := b.keys.Partition(r.id)
	conditions := []meta.Compare{{Key: key, Create: -1, Mod: r.state.Revision}}
	for _, n := range r.state.Replicas {
		c := meta.Compare{Key: b.keys.Live(n)} // it must not be there
		if inc, runs := r.runs[n]; runs {
			c.Create, c.Mod = int64(inc), -1
		}
		conditions = append(conditions, c)
	}
	now := time.Now().UTC()
	record := audit{V: meta.Version, At: now, By: b.self, From: h, Before: r.state, Remains: r}
	name := fmt.Sprintf("%s-recover-%s", now.Format("20060102T150405.000"), r.id)
	ok, rev, err := b.meta.Txn(ctx, conditions, []meta.Put{
		{Key: key, Value: meta.Encode(next)}, {Key: b.keys.Audit(name), Value: meta.Encode(record)},
	})
	if err == nil && !ok {
		err = errCompare
	}
	if err != nil {
		return r, fmt.Errorf("%w: recover %s: %w", edge.ErrUnavailable, r.id, err)
	}
	b.log.WithField("topic", topic).WithField("partition", partition).
		Errorf("RECOVERED uncleanly from %s: what was acknowledged after message %d is lost", from, h.End)
	return r, b.await(ctx, func() bool { s, there := b.catalog.partition(r.id); return !there || s.Revision >= rev })
}
