package control

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/calls"
	"github.com/lockstepmq/lockstep/coordinator/catalog"
	"github.com/lockstepmq/lockstep/coordinator/controller"
	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/coordinator/txn"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/sleep"
	"github.com/lockstepmq/lockstep/internal/tasks"
	"github.com/sirupsen/logrus"
)

const (
	// controlEvery is how often the controller looks if nothing changes, and the
	// others try to become it; with nothing left to do it looks after controlIdle: each
	// look takes some milliseconds when there are many partitions.
	controlEvery = time.Second
	controlIdle  = 10 * time.Second
	// controlPause is the least time between two looks while things change; a look
	// at many partitions that takes longer is paid for by a pause of planShare
	// times its length.
	controlPause = 50 * time.Millisecond
	planShare    = 10
	// controlTimeout bounds one look with all its actions.
	controlTimeout = 5 * time.Second
	// transactions is how many actions are under way at once: etcd writes
	// those that come together with one sync.
	transactions = 16
)

// Session is this broker's registration; *session.Session is one.
type Session interface {
	// Incarnation is 0 while there is no registration.
	Incarnation() ident.Incarnation
	// LeaseID is the lease of the registration.
	LeaseID() int64
}

// Members are those of the metadata store that the brokers embed.
type Members interface {
	// Remove takes a broker's member out for good; one that is not there is no
	// error. It fails rather than leave the others without a majority.
	Remove(ctx context.Context, n ident.Node) error
}

// Tombstones are those of deleted topics; *upkeep.Tombstones collects them.
type Tombstones interface {
	// Collect removes those that no broker needs, while the fence holds. It does not wait.
	Collect(fence meta.Compare)
}

// Trash are the deleted topics that can be undeleted; *upkeep.Trash has them.
type Trash interface {
	// Collect removes those whose grace is over, while the fence holds. It does not wait.
	Collect(fence meta.Compare)
}

// Idle are the channels and topics that are deleted when nothing uses them; *upkeep.IdleControl has them.
type Idle interface {
	// Collect announces and deletes channels, and moves topics into the trash, that nothing has used for
	// long enough, while the fence holds. It does not wait.
	Collect(fence meta.Compare)
}

// Options are all required but Members.
type Options struct {
	Self       ident.Node
	Store      meta.Store
	Keys       meta.Keys
	Catalog    *catalog.Catalog
	Session    Session
	Up         func(ident.Node) bool // a broker answers
	Low        func(ident.Node) bool // a broker is below its disk reserve
	Caller     calls.Caller
	Members    Members // nil: the metadata is elsewhere
	Tombstones Tombstones
	Trash      Trash
	Idle       Idle
	// IdleMost bounds the pause after a look that found nothing to do.
	IdleMost time.Duration
	Stopping func() bool
	Log      logrus.FieldLogger
}

// Control tries to become the cluster's controller and does its work while it is.
type Control struct {
	o    Options
	pace pace // of Keep
}

// New makes a Control.
func New(o Options) *Control { return &Control{o: o, pace: newPace()} }

// Keep works when the metadata or the set of brokers that answer has changed, and now and
// then. It returns when ctx ends.
func (c *Control) Keep(ctx context.Context) {
	for {
		changed, planned, idle := c.o.Catalog.Changed(), time.Duration(0), controlEvery
		if !c.o.Stopping() && c.o.Session.Incarnation() != 0 {
			planned, idle = c.round(ctx)
		}
		if !sleep.Until(ctx, nil, max(controlPause, planShare*planned)) || !sleep.Until(ctx, changed, idle) {
			return
		}
	}
}

// round does the controller's work once, if this broker is it. It returns how long the
// planning took, and when to look again if nothing changes.
func (c *Control) round(ctx context.Context) (planned, idle time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	hold, done := context.WithTimeout(ctx, txn.RequestTimeout)
	fence, ok := c.hold(hold)
	done()
	if !ok {
		return 0, controlEvery
	}
	if err := c.raiseLevel(ctx, fence); err != nil {
		c.o.Log.WithError(err).Info("CONTROLLER could not raise the feature level")
	}
	c.o.Tombstones.Collect(fence)
	c.o.Trash.Collect(fence)
	c.o.Idle.Collect(fence)
	began := time.Now()
	s := Snapshot(c.o.Catalog, c.o.Up, c.o.Low)
	plan := controller.Plan(s, controller.Options{})
	planned = time.Since(began)
	due, wait := c.pace.due(time.Now(), plan, len(s.Partitions))
	c.carryOutAll(ctx, fence, due)
	switch {
	case len(plan) == 0:
		return planned, min(controlIdle, c.o.IdleMost)
	case wait > 0:
		return planned, min(controlEvery, wait)
	}
	return planned, controlEvery
}

// hold reports whether this broker is the controller, and the compare that every
// transaction of it makes.
func (c *Control) hold(ctx context.Context) (fence meta.Compare, ok bool) {
	key := c.o.Keys.Controller()
	switch c.o.Catalog.Controller() {
	case c.o.Self:
	case "":
		_, _, err := c.o.Store.Txn(ctx, []meta.Compare{{Key: key}},
			[]meta.Put{{Key: key, Value: []byte(c.o.Self), Lease: c.o.Session.LeaseID()}})
		if err != nil {
			return meta.Compare{}, false
		}
	default:
		return meta.Compare{}, false
	}
	e, err := c.o.Store.Get(ctx, key)
	if err != nil || string(e.Value) != string(c.o.Self) || e.Lease != c.o.Session.LeaseID() {
		return meta.Compare{}, false
	}
	return meta.Compare{Key: key, Create: e.Create, Mod: -1}, true
}

// carryOutAll carries out one plan, some of its actions at a time.
func (c *Control) carryOutAll(ctx context.Context, fence meta.Compare, plan []controller.Action) {
	tasks.Each(len(plan), transactions, func(i int) {
		if err := c.carryOut(ctx, fence, plan[i]); err != nil {
			c.o.Log.WithError(err).Infof("CONTROLLER could not %T", plan[i])
		}
	})
}

func (c *Control) carryOut(ctx context.Context, fence meta.Compare, a controller.Action) error {
	var put meta.Put
	var revision int64
	switch a := a.(type) {
	case controller.HandOver:
		req := calls.TransferRequest{Topic: uint64(a.Partition.Topic), Number: a.Partition.Number, To: string(a.To)}
		_, err := calls.Transfer.Ask(ctx, c.o.Caller, a.From, req)
		return err
	case controller.Forget:
		return c.forget(ctx, fence, a.Node)
	case controller.DropTombstone:
		if !a.Trashed {
			if err := txn.DeleteAll(ctx, c.o.Store, c.o.Keys.Channels(a.ID)); err != nil {
				return err
			}
		}
		put, revision = meta.Put{Key: c.o.Keys.Topic(a.Name), Delete: true}, a.Revision
	case controller.Rewrite:
		a.State.V = meta.Version
		put, revision = meta.Put{Key: c.o.Keys.Partition(a.Partition), Value: meta.Encode(a.State)}, a.State.Revision
	}
	ok, _, err := c.o.Store.Txn(ctx, []meta.Compare{fence, {Key: put.Key, Create: -1, Mod: revision}}, []meta.Put{put})
	if err == nil && !ok {
		err = txn.ErrCompare
	}
	return err
}

// forget removes a broker that has left: its member of the embedded metadata
// store, then its key, unless it has come back meanwhile.
func (c *Control) forget(ctx context.Context, fence meta.Compare, n ident.Node) error {
	if c.o.Members != nil {
		if err := c.o.Members.Remove(ctx, n); err != nil {
			return fmt.Errorf("remove the metadata member of %s: %w", n, err)
		}
	}
	ok, _, err := c.o.Store.Txn(ctx, []meta.Compare{fence, {Key: c.o.Keys.Live(n)}}, []meta.Put{{Key: c.o.Keys.Node(n), Delete: true}})
	if err == nil && !ok {
		err = txn.ErrCompare
	}
	if err == nil {
		c.o.Log.WithField("node", n).Info("FORGOTTEN: a decommissioned broker has gone, its data path can be deleted")
	}
	return err
}
