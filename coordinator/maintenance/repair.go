package maintenance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/lockstepmq/lockstep/rpc/calls"
	"github.com/sirupsen/logrus"
)

const (
	repairEvery   = time.Second     // how often ranges that could not be repaired are retried
	repairBytes   = 1 << 20         // about how much of a log one request returns
	repairTimeout = 5 * time.Second // of one request
)

// Repair copies the damaged ranges of replicas here from other replicas. A damaged replica is a member like any other;
// its machine is not notified.
type Repair struct {
	*Broker
	refused map[*engine.Partition]string // the problem logged last; owned by the goroutine
}

func newRepair(b *Broker) *Repair { return &Repair{Broker: b, refused: map[*engine.Partition]string{}} }

func (r *Repair) run(ctx context.Context) {
	for _, p := range r.Engine.Partitions() {
		why := r.repair(ctx, p)
		if why == nil {
			delete(r.refused, p)
		} else if r.refused[p] != why.Error() {
			r.refused[p] = why.Error()
			r.Log.WithError(why).WithFields(p.LogFields()).Warn("damaged ranges cannot be repaired yet, trying again")
		}
	}
}

func (r *Repair) repair(ctx context.Context, p *engine.Partition) (failed error) {
	for _, d := range p.Store().Damaged() {
		end, from, err := r.repairPlace(ctx, p, d.From)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("offset %d: %w", d.From, err))
			continue
		}
		r.Metrics.Add(metrics.EventRepaired, 1)
		r.Log.WithFields(p.LogFields()).WithFields(logrus.Fields{"from": from, "start": d.From, "end": end}).
			Info("damaged range repaired")
		_, _ = p.Store().ReadAt(end, 1) // detects damage that continues there
	}
	return failed
}

var errNoCopy = errors.New("no reachable replica has all of it")

// repairPlace repairs the damage at an offset. It queries the other replicas one after another.
func (r *Repair) repairPlace(ctx context.Context, p *engine.Partition, at ident.Offset) (end ident.Offset, from ident.Node, failed error) {
	failed = errNoCopy
	for _, n := range r.Replicas(p.ID()) {
		end, err := r.repairFrom(ctx, p, at, n)
		if err == nil {
			return end, n, nil
		}
		failed = errors.Join(failed, err)
	}
	return 0, "", failed
}

func (r *Repair) repairFrom(ctx context.Context, p *engine.Partition, at ident.Offset, n ident.Node) (ident.Offset, error) {
	ctx, cancel := context.WithTimeout(ctx, repairTimeout)
	defer cancel()
	resp, err := calls.Batches.Ask(ctx, r.Caller, n, calls.BatchesRequest{Partition: p.ID(), From: at})
	if err != nil {
		return 0, err
	}
	batches, err := engine.DecodeBatches(resp.Batches)
	if err == nil && (len(batches) == 0 || batches[0].At.Offset != at) {
		err = fmt.Errorf("%w: %s sent no batch of offset %d", engine.ErrFrame, n, at)
	}
	if err != nil {
		return 0, err
	}
	return p.Store().Repair(batches)
}

// Batches returns committed batches of a replica here to another broker (calls.Batches). They are the same on all replicas,
// and the other broker checks them against its chain of checksums.
func (r *Repair) Batches(req calls.BatchesRequest) (calls.BatchesReply, error) {
	var reply calls.BatchesReply
	p, ok := r.Engine.Partition(req.Partition)
	if !ok {
		return reply, rpc.ErrNoReplica
	}
	batches, err := p.Store().ReadAt(req.From, repairBytes)
	end := p.Committed().Offset
	for i := range batches {
		if batches[i].End.Offset <= end {
			reply.Batches = append(reply.Batches, batches[i].Bytes...)
		}
	}
	if err == nil && len(reply.Batches) == 0 {
		err = fmt.Errorf("%w: offset %d is not committed here", rpc.ErrNotReady, req.From)
	}
	return reply, err
}
