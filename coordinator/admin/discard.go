package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
	"github.com/sirupsen/logrus"
)

// discarded is the audit record of a replica that an operator gave up.
type discarded struct {
	V         int         `json:"v"`
	At        time.Time   `json:"at"`
	By        ident.Node  `json:"by"` // the broker that was asked
	Topic     string      `json:"topic"`
	Partition int         `json:"partition"`
	Replica   api.Holding `json:"replica"`
}

// Discard gives up the replica on one broker that is refused because it has messages that an unclean recovery has lost
// (api.Recovery). The broker moves its files to the trash. Then the unchanged key is written again, so that the broker
// creates the replica again. An interrupted Discard can be repeated.
func (r *Recovery) Discard(ctx context.Context, topic string, partition int, on ident.Node) error {
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
	name := fmt.Sprintf("%s-discard-%s", now.Format("20060102T150405.000"), found.id)
	puts := []metadata.Put{{Key: r.keys.Audit(name), Value: metadata.Encode(record)}}
	if err := r.rewrite(ctx, found.id, puts); err != nil {
		return err
	}
	r.o.Log.WithFields(logrus.Fields{"topic": topic, "partition": partition, "node": on, "end_sequence": h.End}).
		Warn("replica discarded: it is in the trash and will be copied again")
	return nil
}

// keeps returns the reason why the replica on a broker is not given up; "": it may be.
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
func (r *Recovery) rewrite(ctx context.Context, id ident.Partition, beside []metadata.Put) error {
	for {
		e, err := r.store.Get(ctx, r.keys.Partition(id))
		ok := false
		if err == nil {
			compare := []metadata.Compare{{Key: e.Key, Create: -1, Mod: e.Mod}}
			ok, _, err = r.store.Txn(ctx, compare, append([]metadata.Put{{Key: e.Key, Value: e.Value}}, beside...))
		}
		if err != nil {
			return fmt.Errorf("%w: %w", outcome.ErrUnavailable, err)
		}
		if ok {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", outcome.ErrUnavailable, txn.ErrCompare)
		}
	}
}
