package coordinator

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// The methods of Calls between brokers.
const (
	methodPrepare  = "replica.prepare"
	methodRelease  = "replica.release"
	methodQueue    = "queue.do"
	methodQueues   = "queue.do.many"
	methodEnds     = "partition.ends"
	methodDigest   = "partition.digest"
	methodBatches  = "partition.batches"
	methodHandOver = "partition.handover"
	methodSpace    = "broker.space"
	methodHide     = "broker.hide"
	methodFailed   = "broker.failed"
	methodTopics   = "broker.topics"
)

// prepareRequest asks a broker for stores of some partitions of a topic that is
// about to be created; the answer has one store id for each.
type prepareRequest struct {
	Name       string
	Topic      uint64
	Partitions []uint16
}

type prepareResponse struct{ Stores []uint64 }

// prepared are the stores that brokers made, by node and partition number.
type prepared map[ident.Node]map[int]ident.StoreID

func (p prepared) of(n ident.Node, partition int) (ident.StoreID, bool) {
	id, ok := p[n][partition]
	return id, ok
}

// prepareReplicas asks all chosen live brokers at once. Who does not answer in
// time is left out.
func (b *Broker) prepareReplicas(ctx context.Context, c *creation) prepared {
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout+time.Duration(len(c.places))*prepareEach)
	defer cancel()
	out := prepared{}
	var mu sync.Mutex
	var calls sync.WaitGroup
	for node, numbers := range byNode(c.places) {
		if _, live := b.catalog.liveNode(node); !live {
			continue
		}
		calls.Go(func() {
			var resp prepareResponse
			req := prepareRequest{Name: c.spec.name, Topic: uint64(c.id), Partitions: numbers}
			if err := b.call(ctx, node, methodPrepare, req, &resp); err != nil || len(resp.Stores) != len(numbers) {
				b.log.WithError(err).WithField("node", node).Warn("broker did not prepare its replicas")
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out[node] = map[int]ident.StoreID{}
			for i, n := range numbers {
				out[node][int(n)] = ident.StoreID(resp.Stores[i])
			}
		})
	}
	calls.Wait()
	return out
}

// releaseReplicas tells the brokers that a creation came to nothing. They ask
// the metadata before they drop anything.
func (b *Broker) releaseReplicas(ctx context.Context, c *creation) {
	if c.written || len(c.stores) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	for node, stores := range c.stores {
		req := prepareRequest{Name: c.spec.name, Topic: uint64(c.id)}
		for n := range stores {
			req.Partitions = append(req.Partitions, uint16(n))
		}
		_ = b.call(ctx, node, methodRelease, req, &none{}) // an empty folder is left, no more
	}
}

func byNode(places [][]ident.Node) map[ident.Node][]uint16 {
	out := map[ident.Node][]uint16{}
	for n, nodes := range places {
		for _, node := range nodes {
			out[node] = append(out[node], uint16(n))
		}
	}
	return out
}

// openers is how many stores are made at once: each takes some syncs, which the
// file system carries out together.
const openers = 32

// servePrepare creates the stores on this broker.
func (b *Broker) servePrepare(req prepareRequest) (prepareResponse, error) {
	resp := prepareResponse{Stores: make([]uint64, len(req.Partitions))}
	errs := make([]error, len(req.Partitions))
	parallel(len(req.Partitions), openers, func(i int) {
		p := ident.Partition{Topic: ident.TopicID(req.Topic), Number: req.Partitions[i]}
		defer b.turn(p)()
		st, err := b.stored(req.Name, p)
		if errs[i] = err; err == nil {
			resp.Stores[i] = uint64(st.StoreID())
		}
	})
	return resp, errors.Join(errs...)
}

// serveRelease trashes stores that were prepared and never used: no key names
// the partition, read linearizably, and nothing was ever promised or written.
func (b *Broker) serveRelease(ctx context.Context, req prepareRequest) error {
	for _, n := range req.Partitions {
		p := ident.Partition{Topic: ident.TopicID(req.Topic), Number: n}
		if !b.unused(p) || !b.keyIsAbsent(ctx, b.keys.Partition(p)) {
			continue
		}
		if err := b.trashUnused(p); err != nil {
			return err
		}
	}
	return nil
}

func (b *Broker) unused(p ident.Partition) bool {
	st, ok := b.store.Partition(p)
	if _, hosted := b.host(p); !ok || hosted {
		return false
	}
	r := st.Restored()
	return r.Epoch == 0 && r.End == ident.Position{}
}

// trashUnused does nothing if the partition was opened since: its key came late.
func (b *Broker) trashUnused(p ident.Partition) error {
	defer b.turn(p)()
	if !b.unused(p) {
		return nil
	}
	return b.store.Trash(p)
}
