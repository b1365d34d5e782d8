package coordinator

import (
	"context"
	"errors"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/controller"
	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc"
)

// controlEvery is how often the controller looks, and the others try to become it.
const controlEvery = time.Second

// handOverRequest asks a partition's leader to give its place to another member.
type handOverRequest struct {
	Topic  uint64
	Number uint16
	To     string
}

// runController tries to become the cluster's controller and does its work while
// it is. The key lies under the registration's lease, so it goes with it.
// Started by start, ends with the broker.
func (b *Broker) runController(ctx context.Context) {
	tick := time.NewTicker(controlEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if b.stopping.Load() || b.session.incarnation() == 0 {
			continue
		}
		round, cancel := context.WithTimeout(ctx, metaTimeout)
		if fence, ok := b.holdControl(round); ok {
			b.control(round, fence)
		}
		cancel()
		if err := b.store.EmptyTrash(b.o.TrashGrace); err != nil {
			b.log.WithError(err).Warn("cannot empty the trash")
		}
	}
}

// holdControl reports whether this broker is the controller, and the compare
// that every transaction of it makes.
func (b *Broker) holdControl(ctx context.Context) (meta.Compare, bool) {
	key := b.keys.Controller()
	switch b.catalog.controllerNode() {
	case b.self:
	case "":
		_, _, err := b.meta.Txn(ctx, []meta.Compare{{Key: key}},
			[]meta.Put{{Key: key, Value: []byte(b.self), Lease: b.session.leaseID()}})
		if err != nil {
			return meta.Compare{}, false
		}
	default:
		return meta.Compare{}, false
	}
	e, err := b.meta.Get(ctx, key)
	if err != nil || string(e.Value) != string(b.self) || e.Lease != b.session.leaseID() {
		return meta.Compare{}, false
	}
	return meta.Compare{Key: key, Create: e.Create, Mod: -1}, true
}

// control carries out one plan.
func (b *Broker) control(ctx context.Context, fence meta.Compare) {
	for _, a := range controller.Plan(b.snapshot(), controller.Options{}) {
		if err := b.carryOut(ctx, fence, a); err != nil {
			b.log.WithError(err).Infof("CONTROLLER could not %T", a)
		}
	}
}

func (b *Broker) carryOut(ctx context.Context, fence meta.Compare, a controller.Action) error {
	var put meta.Put
	var revision int64
	switch a := a.(type) {
	case controller.HandOver:
		req := handOverRequest{Topic: uint64(a.Partition.Topic), Number: a.Partition.Number, To: string(a.To)}
		return b.call(ctx, a.From, methodHandOver, req, &none{})
	case controller.DropTombstone:
		put, revision = meta.Put{Key: b.keys.Topic(a.Name), Delete: true}, a.Revision
	case controller.DropReplica:
		a.State.V = meta.Version
		put, revision = meta.Put{Key: b.keys.Partition(a.Partition), Value: meta.Encode(a.State)}, a.State.Revision
	case controller.AddReplica:
		a.State.V = meta.Version
		put, revision = meta.Put{Key: b.keys.Partition(a.Partition), Value: meta.Encode(a.State)}, a.State.Revision
	}
	ok, _, err := b.meta.Txn(ctx, []meta.Compare{fence, {Key: put.Key, Create: -1, Mod: revision}}, []meta.Put{put})
	if err == nil && !ok {
		err = errCompare
	}
	return err
}

func (b *Broker) snapshot() controller.Snapshot {
	s := controller.Snapshot{NowMS: time.Now().UnixMilli()}
	for _, name := range b.catalog.records() {
		if t, ok := b.catalog.record(name); ok {
			s.Topics = append(s.Topics, controller.Topic{Name: name, State: t})
		}
	}
	for _, p := range b.catalog.partitions() {
		if state, ok := b.catalog.partition(p); ok {
			s.Partitions = append(s.Partitions, controller.Partition{ID: p, State: state})
		}
	}
	for _, n := range b.catalog.nodes() {
		if n.Leaving {
			s.Leaving = append(s.Leaving, n.Name)
		}
	}
	for _, c := range b.candidates(0) {
		if b.members.up(c.Node) {
			s.Live = append(s.Live, c)
		}
	}
	return s
}

// serveHandOver starts a planned change of leader of a partition led here.
func (b *Broker) serveHandOver(req handOverRequest) error {
	p := ident.Partition{Topic: ident.TopicID(req.Topic), Number: req.Number}
	if !b.Leads(p) {
		return errors.Join(rpc.ErrNotLeader)
	}
	b.post(p, replica.HandOver{To: ident.Node(req.To)})
	return nil
}
