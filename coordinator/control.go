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

const (
	// controlEvery is how often the controller looks if nothing changes, and the
	// others try to become it; with nothing left to do it is content with
	// controlIdle: each look takes some milliseconds when there are many partitions.
	controlEvery = time.Second
	controlIdle  = 10 * time.Second
	// controlPause is the least time between two looks while things change; a look
	// at many partitions that takes longer is paid for by a pause of planShare
	// times its length.
	controlPause = 50 * time.Millisecond
	planShare    = 10
	// controlTimeout bounds one look with all that comes of it.
	controlTimeout = 5 * time.Second
	// transactions is how many of one operation are under way at once: etcd writes
	// those that come together with one sync.
	transactions = 16
)

// handOverRequest asks a partition's leader to give its place to another member.
type handOverRequest struct {
	Topic  uint64
	Number uint16
	To     string
}

// runController tries to become the cluster's controller and does its work while
// it is: when the metadata or who answers has changed, and now and then. The key
// lies under the registration's lease, so it goes with it. Started by start, ends
// with the broker.
func (b *Broker) runController(ctx context.Context) {
	for {
		changed, planned, idle := b.Changed(), time.Duration(0), controlEvery
		if !b.stopping.Load() && b.session.incarnation() != 0 {
			planned, idle = b.controlRound(ctx)
		}
		if !waitFor(ctx, nil, max(controlPause, planShare*planned)) || !waitFor(ctx, changed, idle) {
			return
		}
	}
}

// controlRound does the controller's work once, if this broker is it. It says how
// long the planning took, and when to look again if nothing changes.
func (b *Broker) controlRound(ctx context.Context) (planned, idle time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	hold, done := context.WithTimeout(ctx, metaTimeout)
	fence, ok := b.holdControl(hold)
	done()
	if !ok {
		return 0, controlEvery
	}
	if err := b.raiseLevel(ctx, fence); err != nil {
		b.log.WithError(err).Info("CONTROLLER could not raise the feature level")
	}
	b.dropMarks(fence)
	began := time.Now()
	plan := controller.Plan(b.snapshot(), controller.Options{})
	planned = time.Since(began)
	b.control(ctx, fence, plan)
	if len(plan) == 0 {
		return planned, min(controlIdle, b.o.MarkGrace)
	}
	return planned, controlEvery
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

// control carries out one plan, some of its actions at a time.
func (b *Broker) control(ctx context.Context, fence meta.Compare, plan []controller.Action) {
	parallel(len(plan), transactions, func(i int) {
		if err := b.carryOut(ctx, fence, plan[i]); err != nil {
			b.log.WithError(err).Infof("CONTROLLER could not %T", plan[i])
		}
	})
}

func (b *Broker) carryOut(ctx context.Context, fence meta.Compare, a controller.Action) error {
	var put meta.Put
	var revision int64
	switch a := a.(type) {
	case controller.HandOver:
		req := handOverRequest{Topic: uint64(a.Partition.Topic), Number: a.Partition.Number, To: string(a.To)}
		return b.call(ctx, a.From, methodHandOver, req, &none{})
	case controller.Forget:
		return b.forget(ctx, fence, a.Node)
	case controller.DropTombstone:
		if err := b.deleteChannelKeys(ctx, a.ID); err != nil {
			return err
		}
		put, revision = meta.Put{Key: b.keys.Topic(a.Name), Delete: true}, a.Revision
	case controller.Rewrite:
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
		if !n.Leaving {
			continue
		}
		s.Leaving = append(s.Leaving, n.Name)
		if _, runs := b.catalog.liveNode(n.Name); !runs {
			s.Gone = append(s.Gone, n.Name)
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
	if h, ok := b.host(p); ok {
		h.flush() // what the channels changed in the last 10 ms goes along
	}
	b.post(p, replica.HandOver{To: ident.Node(req.To)})
	return nil
}
