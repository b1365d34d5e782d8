package admin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
)

const (
	recoverWait  = 2 * time.Second // for the answers of all replicas
	recoverCalls = 16              // brokers that are asked concurrently
)

// recovery recovers partitions whose in-sync set is lost (api.Recovery).
type recovery struct {
	*records
	o Options
}

// remains is the state of a partition, with everything that a transaction has to compare.
type remains struct {
	api.Remains
	id      ident.Partition
	state   metadata.PartitionState
	runs    map[ident.Node]ident.Incarnation // of its brokers, when they were queried
	follows bool                             // the leader in the key answers, and does not lead
}

// Remains asks all replicas of a partition for their contents (api.Recovery).
func (r *recovery) Remains(ctx context.Context, topic string, partition int) (api.Remains, error) {
	found, err := r.remains(ctx, topic, partition)
	return found.Remains, err
}

func (r *recovery) remains(ctx context.Context, topic string, partition int) (remains, error) {
	found := remains{runs: map[ident.Node]ident.Incarnation{}}
	found.Remains = api.Remains{Topic: topic, Partition: partition, InSync: []api.Member{}, Replicas: []api.Holding{}}
	t, ok := r.catalog.Topic(topic)
	if !ok {
		return found, outcome.ErrTopicNotFound
	}
	if err := checkPartition(t, partition); err != nil {
		return found, err
	}
	found.id = t.Partition(partition)
	e, err := r.store.Get(ctx, r.keys.Partition(found.id))
	if err == nil {
		found.state, err = metadata.DecodePartition(e)
	}
	if err != nil {
		return found, fmt.Errorf("%w: %w", outcome.ErrUnavailable, err)
	}
	found.Epoch = found.state.Epoch
	if l, ok := r.o.Directory.Leader(found.id); ok {
		found.Leader = l.Node
	}
	r.collectHoldings(ctx, &found)
	found.judge()
	return found, nil
}

// collectHoldings asks the brokers of a partition. A broker that does not answer in time is left out.
func (r *recovery) collectHoldings(ctx context.Context, found *remains) {
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
		if d, err := calls.Digest.Ask(ctx, r.o.Caller, nodes[i], calls.JSON[api.DigestRequest]{Value: beyond}); err == nil {
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

// judge sets the state of the in-sync set, and the reason why a recovery is refused.
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
	if r.newest() > r.Epoch || r.ownerless() { // no member can lead in an epoch that is over
		r.Outdated, r.Leader, r.Refused = true, "", ""
	}
	if r.Refused == "" && len(r.Replicas) == 0 {
		r.Refused = "no replica answers"
	}
}

// ownerless reports whether the named leader runs, has seen the key's epoch, and follows. Then the epoch was led before
// (ID-5). This happens if restored metadata is one change of leader behind: an elected member is given an epoch that
// its replica has already seen. A new leader that has not read the key yet has only seen lower epochs.
func (r *remains) ownerless() bool {
	h, answers := r.holding(r.state.Leader)
	inc, runs := r.runs[r.state.Leader]
	return answers && r.follows && h.Epoch == r.Epoch && runs && inc == r.state.LeaderIncarnation
}

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

// audit is the audit record of an unclean recovery.
type audit struct {
	V      int                     `json:"v"`
	At     time.Time               `json:"at"`
	By     ident.Node              `json:"by"` // the broker that was asked
	From   api.Holding             `json:"from"`
	Before metadata.PartitionState `json:"before"`
	api.Remains
}

func (r *recovery) auditPut(now time.Time, what string, id ident.Partition, record any) metadata.Put {
	name := fmt.Sprintf("%s-%s-%s", now.Format("20060102T150405.000"), what, id)
	return metadata.Put{Key: r.keys.Audit(name), Value: metadata.Encode(record)}
}

// Recover makes one replica the whole in-sync set of a partition whose in-sync set is lost: acknowledged messages that
// are not on it are permanently lost. The minimum is 1 until enough replicas are in sync. This is the only unclean
// election. The transaction fails if a member of the old set has started or ended since it was queried. If the metadata
// is outdated, Recover also sets the leader, in a new epoch.
func (r *recovery) Recover(ctx context.Context, topic string, partition int, from ident.Node) (api.Remains, error) {
	found, err := r.remains(ctx, topic, partition)
	if err != nil {
		return found.Remains, err
	}
	if found.Refused != "" {
		return found.Remains, fmt.Errorf("%w: %s", outcome.ErrInvalid, found.Refused)
	}
	h, ok := found.holding(from)
	if !ok {
		return found.Remains, fmt.Errorf("%w: %q does not answer with a replica of it", outcome.ErrInvalid, from)
	}
	next := found.state.Clone()
	next.V, next.ISR, next.MinInSync = metadata.Version, []ident.Member{{Node: h.Node, Store: h.Store}}, 1
	next.Abandoned = max(next.Epoch, found.newest())
	if found.Outdated {
		next.Epoch, next.Leader, next.LeaderIncarnation = found.newest()+1, from, found.runs[from]
	}
	now := time.Now().UTC()
	record := audit{V: metadata.Version, At: now, By: r.o.Self, From: h, Before: found.state, Remains: found.Remains}
	rev, err := txn.Write(ctx, r.store, r.conditions(&found),
		metadata.Put{Key: r.keys.Partition(found.id), Value: metadata.Encode(next)}, r.auditPut(now, "recover", found.id, record))
	if err != nil {
		return found.Remains, fmt.Errorf("%w: recover %s: %w", outcome.ErrUnavailable, found.id, err)
	}
	r.o.Log.WithFields(logrus.Fields{"topic": topic, "partition": partition, "from": from, "end_sequence": h.End}).
		Error("partition recovered uncleanly: acknowledged messages after its new end are lost")
	return found.Remains, r.catalog.Await(ctx, func() bool { s, there := r.catalog.Partition(found.id); return !there || s.Revision >= rev })
}

// conditions compare the partition's key, and the incarnations of all its brokers, with the values that were read.
func (r *recovery) conditions(found *remains) []metadata.Compare {
	list := []metadata.Compare{{Key: r.keys.Partition(found.id), Create: -1, Mod: found.state.Revision}}
	for _, n := range found.state.Replicas {
		c := metadata.Compare{Key: r.keys.Live(n)} // the key must not exist
		if inc, runs := found.runs[n]; runs {
			c.Create, c.Mod = int64(inc), -1
		}
		list = append(list, c)
	}
	return list
}

// discarded is the audit record of a replica that an operator gave up.
type discarded struct {
	V         int         `json:"v"`
	At        time.Time   `json:"at"`
	By        ident.Node  `json:"by"` // the broker that was asked
	Topic     string      `json:"topic"`
	Partition int         `json:"partition"`
	Replica   api.Holding `json:"replica"`
}

// Discard discards the replica of one broker if the replica is refused because it has messages that an unclean recovery
// has lost (api.Recovery). The broker moves its files to the trash. Then the unchanged key is written again, so that
// the broker creates the replica again. An interrupted Discard can be repeated.
func (r *recovery) Discard(ctx context.Context, topic string, partition int, on ident.Node) error {
	found, err := r.remains(ctx, topic, partition)
	if err != nil {
		return err
	}
	if why := found.keeps(on); why != "" {
		return fmt.Errorf("%w: %s", outcome.ErrInvalid, why)
	}
	h, there := found.holding(on)
	if there {
		req := calls.DiscardRequest{Partition: found.id, Store: h.Store}
		if _, err := calls.Discard.Ask(ctx, r.o.Caller, on, req); err != nil {
			if !errors.Is(err, outcome.ErrInvalid) {
				err = fmt.Errorf("%w: ask %s: %w", outcome.ErrUnavailable, on, err)
			}
			return err
		}
	}
	now := time.Now().UTC()
	record := discarded{V: metadata.Version, At: now, By: r.o.Self, Topic: topic, Partition: partition, Replica: h}
	if err := r.rewrite(ctx, found.id, r.auditPut(now, "discard", found.id, record)); err != nil {
		return err
	}
	r.o.Log.WithFields(logrus.Fields{"topic": topic, "partition": partition, "node": on, "end_sequence": h.End}).
		Warn("replica discarded: it is in the trash and will be copied again")
	return nil
}

// keeps returns the reason why the replica on a broker must not be discarded; "": it may be.
func (r *remains) keeps(on ident.Node) string {
	switch {
	case !slices.Contains(r.state.Replicas, on):
		return fmt.Sprintf("%q holds no replica of it", on)
	case r.state.Abandoned == 0:
		return "it was never recovered uncleanly: no replica of it is refused"
	case ident.HasMember(r.state.ISR, on):
		return fmt.Sprintf("%s is in sync", on)
	case r.Leader == "":
		return "it has no leader from which the replica could be copied"
	}
	return ""
}

// rewrite writes a partition's unchanged key, so that every broker reads it again.
func (r *recovery) rewrite(ctx context.Context, id ident.Partition, beside metadata.Put) error {
	for {
		e, err := r.store.Get(ctx, r.keys.Partition(id))
		if err == nil {
			compare := []metadata.Compare{{Key: e.Key, Create: -1, Mod: e.Mod}}
			_, err = txn.Write(ctx, r.store, compare, metadata.Put{Key: e.Key, Value: e.Value}, beside)
		}
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, txn.ErrCompare) || ctx.Err() != nil:
			return fmt.Errorf("%w: %w", outcome.ErrUnavailable, err)
		}
	}
}
