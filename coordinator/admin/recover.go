package admin

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
	"github.com/sirupsen/logrus"
)

// recoverWait bounds the question to all brokers about their replicas.
const recoverWait = 2 * time.Second

// recoverCalls is how many brokers are asked at once.
const recoverCalls = 16

// Recovery recovers partitions whose in-sync set is lost (api.Recovery).
type Recovery struct {
	*records
	self      ident.Node
	directory Directory
	caller    calls.Caller
	log       logrus.FieldLogger
}

// remains is what there is of a partition, with all that a transaction has to compare.
type remains struct {
	api.Remains
	id    ident.Partition
	state metadata.PartitionState
	runs  map[ident.Node]ident.Incarnation // of all brokers concerned, when they were asked
	// follows: the broker that the key names as leader answers, and does not lead.
	follows bool
}

// Remains asks all replicas of a partition for their contents. Errors wrap
// api.ErrTopicNotFound, api.ErrInvalid and api.ErrUnavailable.
func (r *Recovery) Remains(ctx context.Context, topic string, partition int) (api.Remains, error) {
	found, err := r.remains(ctx, topic, partition)
	return found.Remains, err
}

func (r *Recovery) remains(ctx context.Context, topic string, partition int) (remains, error) {
	found := remains{runs: map[ident.Node]ident.Incarnation{}}
	found.Remains = api.Remains{Topic: topic, Partition: partition, InSync: []api.Member{}, Replicas: []api.Holding{}}
	t, ok := r.catalog.Topic(topic)
	if !ok {
		return found, api.ErrTopicNotFound
	}
	if partition < 0 || partition >= t.Partitions {
		return found, fmt.Errorf("%w: partition must be 0 to %d", api.ErrInvalid, t.Partitions-1)
	}
	found.id = ident.Partition{Topic: t.ID, Number: uint16(partition)}
	e, err := r.store.Get(ctx, r.keys.Partition(found.id))
	if err == nil {
		found.state, err = metadata.DecodePartition(e)
	}
	if err != nil {
		return found, fmt.Errorf("%w: %w", api.ErrUnavailable, err)
	}
	found.Epoch = found.state.Epoch
	if l, ok := r.directory.Leader(found.id); ok {
		found.Leader = l.Node
	}
	r.collectHoldings(ctx, &found)
	found.judge()
	return found, nil
}

// collectHoldings asks the brokers that are registered; one that does not answer in
// time is missing from the answer.
func (r *Recovery) collectHoldings(ctx context.Context, found *remains) {
	ctx, cancel := context.WithTimeout(ctx, recoverWait)
	defer cancel()
	nodes := found.state.Replicas
	for _, n := range nodes {
		if live, ok := r.catalog.LiveNode(n); ok {
			found.runs[n] = live.Incarnation
		}
	}
	answers := make([]*api.Digest, len(nodes))
	concurrency.Each(len(nodes), recoverCalls, func(i int) {
		beyond := api.DigestRequest{Topic: found.Topic, Partition: found.id.Number, From: math.MaxInt64} // its ends, no batches
		if d, err := calls.Digest.Ask(ctx, r.caller, nodes[i], calls.JSON[api.DigestRequest]{Value: beyond}); err == nil {
			answers[i] = &d.Value
		}
	})
	for _, d := range answers {
		if d != nil {
			found.Replicas = append(found.Replicas, api.Holding{Node: d.Node, Store: d.Store, Epoch: d.Epoch, Committed: d.CommittedSequence, End: d.EndSequence})
			found.follows = found.follows || d.Node == found.state.Leader && d.Role == replica.Follower.String()
		}
	}
}

// judge reports the state of the in-sync set, and whether it can be waited for.
func (r *remains) judge() {
	for _, m := range r.state.ISR {
		state := api.MemberSilent
		if h, ok := r.holding(m.Node); ok {
			state = api.MemberReplaced
			if h.Store == m.Store {
				state = api.MemberHere
			}
		}
		r.InSync = append(r.InSync, api.Member{Member: m, State: state})
		switch _, runs := r.runs[m.Node]; {
		case r.Refused != "":
		case state == api.MemberHere:
			r.Refused = fmt.Sprintf("%s is in sync and runs: it holds everything and leads as soon as enough replicas are there", m.Node)
		case state == api.MemberSilent && runs:
			r.Refused = fmt.Sprintf("%s is in sync and registered, but does not answer: ask again, or stop it", m.Node)
		}
	}
	if r.Leader != "" {
		r.Refused = fmt.Sprintf("%s leads: nothing is to be recovered", r.Leader)
	}
	if r.newest() > r.Epoch || r.ownerless() { // a broker that is named as leader, or in sync, cannot lead in an epoch that is over
		r.Outdated, r.Leader, r.Refused = true, "", ""
	}
	if r.Refused == "" && len(r.Replicas) == 0 {
		r.Refused = "no replica answers"
	}
}

// ownerless reports whether the named leader runs, has seen the key's epoch, and follows: the
// epoch has been led before (ID-5). That is what becomes of metadata that is one change of
// leader behind: an elected member gets an epoch that its replica has seen already. A new
// leader that has not read the key yet knows lower epochs only.
func (r *remains) ownerless() bool {
	h, answers := r.holding(r.state.Leader)
	inc, runs := r.runs[r.state.Leader]
	return answers && r.follows && h.Epoch == r.Epoch && runs && inc == r.state.LeaderIncarnation
}

// newest is the highest epoch that a replica has seen.
func (r *remains) newest() (e ident.Epoch) {
	for _, h := range r.Replicas {
		e = max(e, h.Epoch)
	}
	return e
}

func (r *remains) holding(n ident.Node) (api.Holding, bool) {
	i := slices.IndexFunc(r.Replicas, func(h api.Holding) bool { return h.Node == n })
	if i < 0 {
		return api.Holding{}, false
	}
	return r.Replicas[i], true
}

// audit is the record of an unclean recovery.
type audit struct {
	V      int                     `json:"v"`
	At     time.Time               `json:"at"`
	By     ident.Node              `json:"by"` // the broker that was asked
	From   api.Holding             `json:"from"`
	Before metadata.PartitionState `json:"before"`
	api.Remains
}

// Recover makes one replica the whole in-sync set of a partition whose in-sync
// set is lost: acknowledged messages that are not on it are permanently gone. The
// minimum is 1 until the controller finds enough replicas in sync to raise it.
// Nothing else in a cluster elects uncleanly. The transaction holds only if no
// member of the old set was started, or ended, since it was asked. Where the
// metadata is outdated it names the leader, too, in an epoch that is new to all.
func (r *Recovery) Recover(ctx context.Context, topic string, partition int, from ident.Node) (api.Remains, error) {
	found, err := r.remains(ctx, topic, partition)
	if err != nil {
		return found.Remains, err
	}
	if found.Refused != "" {
		return found.Remains, fmt.Errorf("%w: %s", api.ErrInvalid, found.Refused)
	}
	h, ok := found.holding(from)
	if !ok {
		return found.Remains, fmt.Errorf("%w: %q does not answer with a replica of it", api.ErrInvalid, from)
	}
	next := found.state.Clone()
	next.V, next.ISR, next.MinInSync = metadata.Version, []ident.Member{{Node: h.Node, Store: h.Store}}, 1
	next.Abandoned = max(next.Epoch, found.newest())
	if found.Outdated {
		next.Epoch, next.Leader, next.LeaderIncarnation = found.newest()+1, from, found.runs[from]
	}
	now := time.Now().UTC()
	record := audit{V: metadata.Version, At: now, By: r.self, From: h, Before: found.state, Remains: found.Remains}
	name := fmt.Sprintf("%s-recover-%s", now.Format("20060102T150405.000"), found.id)
	ok, rev, err := r.store.Txn(ctx, r.conditions(&found), []metadata.Put{
		{Key: r.keys.Partition(found.id), Value: metadata.Encode(next)}, {Key: r.keys.Audit(name), Value: metadata.Encode(record)},
	})
	if err == nil && !ok {
		err = txn.ErrCompare
	}
	if err != nil {
		return found.Remains, fmt.Errorf("%w: recover %s: %w", api.ErrUnavailable, found.id, err)
	}
	r.log.WithFields(logrus.Fields{"topic": topic, "partition": partition, "from": from, "end_sequence": h.End}).
		Error("partition recovered uncleanly: acknowledged messages after its new end are lost")
	return found.Remains, r.catalog.Await(ctx, func() bool { s, there := r.catalog.Partition(found.id); return !there || s.Revision >= rev })
}

// conditions compare the partition's key as it was read, and the runs of all its brokers.
func (r *Recovery) conditions(found *remains) []metadata.Compare {
	list := []metadata.Compare{{Key: r.keys.Partition(found.id), Create: -1, Mod: found.state.Revision}}
	for _, n := range found.state.Replicas {
		c := metadata.Compare{Key: r.keys.Live(n)} // it must not be there
		if inc, runs := found.runs[n]; runs {
			c.Create, c.Mod = int64(inc), -1
		}
		list = append(list, c)
	}
	return list
}
