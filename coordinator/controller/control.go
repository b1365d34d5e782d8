package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/controller/plan"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/metadata/session"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
	"github.com/sirupsen/logrus"
)

const (
	// controlEvery is the pause between two rounds if nothing changes; controlIdle if the last one had nothing to do: with
	// many partitions a round takes some milliseconds.
	controlEvery = time.Second
	controlIdle  = 10 * time.Second
	// controlPause is the least pause between two rounds. After a plan of many partitions it is planShare times the
	// duration of the planning.
	controlPause = 50 * time.Millisecond
	planShare    = 10
	// controlTimeout bounds one round with all its actions.
	controlTimeout = 5 * time.Second
	// transactions is the number of concurrent actions: etcd syncs those that arrive together once.
	transactions = 16
)

// Options: all fields except Members are required.
type Options struct {
	Self    ident.Node
	Store   metadata.Store
	Keys    metadata.Keys
	Catalog *catalog.Catalog
	Session *session.Session
	Up      func(ident.Node) bool // a broker answers
	Low     func(ident.Node) bool // a broker is below its disk reserve
	Caller  calls.Caller
	Members metadata.Members // nil: the metadata store is external
	// Collect does further work of the controller, while this broker is the controller. It does not block.
	Collect func(fence metadata.Compare)
	// IdleMost bounds the pause after a round without actions.
	IdleMost time.Duration
	Stopping func() bool
	Log      logrus.FieldLogger
}

type controller struct {
	o    Options
	pace pace
}

// Run tries to become the cluster's controller, and does its work while it is. It makes a round after each change of the
// metadata or of the set of brokers that answer, and regularly. It returns when ctx ends.
func Run(ctx context.Context, o Options) {
	c := &controller{o: o, pace: newPace()}
	for {
		changed, planned, idle := c.o.Catalog.Changed(), time.Duration(0), controlEvery
		if !c.o.Stopping() && c.o.Session.Incarnation() != 0 {
			planned, idle = c.round(ctx)
		}
		if !concurrency.SleepUntil(ctx, nil, max(controlPause, planShare*planned)) || !concurrency.SleepUntil(ctx, changed, idle) {
			return
		}
	}
}

// round does the controller's work once, if this broker is elected. It returns how long planning took, and the time
// until the next round if nothing changes.
func (c *controller) round(ctx context.Context) (planned, idle time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	hold, done := context.WithTimeout(ctx, txn.RequestTimeout)
	fence, ok := c.acquire(hold)
	done()
	if !ok {
		return 0, controlEvery
	}
	if err := c.raiseLevel(ctx, fence); err != nil {
		c.o.Log.WithError(err).WithField("action", "raise_feature_level").Info("controller action failed, trying again")
	}
	c.o.Collect(fence)
	began := time.Now()
	s := Snapshot(c.o.Catalog, c.o.Up, c.o.Low)
	steps := plan.Plan(s, plan.Options{})
	planned = time.Since(began)
	due, wait := c.pace.due(time.Now(), steps, len(s.Partitions))
	c.carryOutAll(ctx, fence, due)
	switch {
	case len(steps) == 0:
		return planned, min(controlIdle, c.o.IdleMost)
	case wait > 0:
		return planned, min(controlEvery, wait)
	}
	return planned, controlEvery
}

// acquire reports whether this broker is the controller, and returns the compare for all its transactions.
func (c *controller) acquire(ctx context.Context) (fence metadata.Compare, ok bool) {
	key := c.o.Keys.Controller()
	switch c.o.Catalog.Controller() {
	case c.o.Self:
	case "":
		_, _, err := c.o.Store.Txn(ctx, []metadata.Compare{{Key: key}},
			[]metadata.Put{{Key: key, Value: []byte(c.o.Self), Lease: c.o.Session.LeaseID()}})
		if err != nil {
			return metadata.Compare{}, false
		}
	default:
		return metadata.Compare{}, false
	}
	e, err := c.o.Store.Get(ctx, key)
	if err != nil || string(e.Value) != string(c.o.Self) || e.Lease != c.o.Session.LeaseID() {
		return metadata.Compare{}, false
	}
	return metadata.Compare{Key: key, Create: e.Create, Mod: -1}, true
}

func (c *controller) carryOutAll(ctx context.Context, fence metadata.Compare, steps []plan.Action) {
	concurrency.Each(len(steps), transactions, func(i int) {
		if err := c.carryOut(ctx, fence, steps[i]); err != nil {
			c.o.Log.WithError(err).WithField("action", nameOf(steps[i])).Info("controller action failed, trying again")
		}
	})
}

// nameOf names an action in the log.
func nameOf(a plan.Action) string {
	switch a.(type) {
	case plan.DropTombstone:
		return "drop_tombstone"
	case plan.TransferLeadership:
		return "transfer_leadership"
	case plan.Rewrite:
		return "rewrite_partition"
	}
	return "forget_broker"
}

func (c *controller) carryOut(ctx context.Context, fence metadata.Compare, a plan.Action) error {
	var put metadata.Put
	var revision int64
	switch a := a.(type) {
	case plan.TransferLeadership:
		req := calls.TransferRequest{Partition: a.Partition, To: a.To}
		_, err := calls.Transfer.Ask(ctx, c.o.Caller, a.From, req)
		return err
	case plan.Forget:
		return c.forget(ctx, fence, a.Node)
	case plan.DropTombstone:
		if !a.Trashed {
			if err := txn.DeleteAll(ctx, c.o.Store, c.o.Keys.Channels(a.ID)); err != nil {
				return err
			}
		}
		put, revision = metadata.Put{Key: c.o.Keys.Topic(a.Name), Delete: true}, a.Revision
	case plan.Rewrite:
		a.State.V = metadata.Version
		put, revision = metadata.Put{Key: c.o.Keys.Partition(a.Partition), Value: metadata.Encode(a.State)}, a.State.Revision
	}
	_, err := txn.Write(ctx, c.o.Store, []metadata.Compare{fence, {Key: put.Key, Create: -1, Mod: revision}}, put)
	return err
}

// forget removes a broker that has left: first its member of the embedded metadata store, then its key. The key stays
// if the broker has come back.
func (c *controller) forget(ctx context.Context, fence metadata.Compare, n ident.Node) error {
	if c.o.Members != nil {
		if err := c.o.Members.Remove(ctx, n); err != nil {
			return fmt.Errorf("remove the metadata member of %s: %w", n, err)
		}
	}
	_, err := txn.Write(ctx, c.o.Store, []metadata.Compare{fence, {Key: c.o.Keys.Live(n)}}, metadata.Put{Key: c.o.Keys.Node(n), Delete: true})
	if err == nil {
		c.o.Log.WithField("node", n).Info("decommissioned broker removed: its data path can be deleted")
	}
	return err
}
