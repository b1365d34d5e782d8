package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/controller/plan"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/metadata/txn"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc/calls"
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
	// Remove permanently removes a broker's member; one that is not there is no
	// error. It fails rather than leave the others without a majority.
	Remove(ctx context.Context, n ident.Node) error
}

// Tombstones are those of deleted topics; *maintenance.Tombstones collects them.
type Tombstones interface {
	// Collect removes those that no broker needs, while the fence holds. It does not wait.
	Collect(fence metadata.Compare)
}

// Trash are the deleted topics that can be undeleted; *maintenance.Trash has them.
type Trash interface {
	// Collect removes those whose grace is over, while the fence holds. It does not wait.
	Collect(fence metadata.Compare)
}

// Idle are the channels and topics that are deleted when nothing uses them; *maintenance.IdleControl has them.
type Idle interface {
	// Collect announces and deletes channels, and moves topics into the trash, that nothing has used for
	// long enough, while the fence holds. It does not wait.
	Collect(fence metadata.Compare)
}

// Options are all required but Members.
type Options struct {
	Self       ident.Node
	Store      metadata.Store
	Keys       metadata.Keys
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

// Run works when the metadata or the set of brokers that answer has changed, and now and
// then. It returns when ctx ends.
func (c *Control) Run(ctx context.Context) {
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

// round does the controller's work once, if this broker is it. It returns how long the
// planning took, and when to look again if nothing changes.
func (c *Control) round(ctx context.Context) (planned, idle time.Duration) {
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
	c.o.Tombstones.Collect(fence)
	c.o.Trash.Collect(fence)
	c.o.Idle.Collect(fence)
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

// acquire reports whether this broker is the controller, and the compare that every
// transaction of it makes.
func (c *Control) acquire(ctx context.Context) (fence metadata.Compare, ok bool) {
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

// carryOutAll carries out one plan, some of its actions at a time.
func (c *Control) carryOutAll(ctx context.Context, fence metadata.Compare, steps []plan.Action) {
	concurrency.Each(len(steps), transactions, func(i int) {
		if err := c.carryOut(ctx, fence, steps[i]); err != nil {
			c.o.Log.WithError(err).WithField("action", steps[i].String()).Info("controller action failed, trying again")
		}
	})
}

func (c *Control) carryOut(ctx context.Context, fence metadata.Compare, a plan.Action) error {
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
	ok, _, err := c.o.Store.Txn(ctx, []metadata.Compare{fence, {Key: put.Key, Create: -1, Mod: revision}}, []metadata.Put{put})
	if err == nil && !ok {
		err = txn.ErrCompare
	}
	return err
}

// forget removes a broker that has left: its member of the embedded metadata
// store, then its key, unless it has come back.
func (c *Control) forget(ctx context.Context, fence metadata.Compare, n ident.Node) error {
	if c.o.Members != nil {
		if err := c.o.Members.Remove(ctx, n); err != nil {
			return fmt.Errorf("remove the metadata member of %s: %w", n, err)
		}
	}
	ok, _, err := c.o.Store.Txn(ctx, []metadata.Compare{fence, {Key: c.o.Keys.Live(n)}}, []metadata.Put{{Key: c.o.Keys.Node(n), Delete: true}})
	if err == nil && !ok {
		err = txn.ErrCompare
	}
	if err == nil {
		c.o.Log.WithField("node", n).Info("decommissioned broker removed: its data path can be deleted")
	}
	return err
}
