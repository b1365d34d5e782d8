package coordinator

import (
	"cmp"
	"context"
	"errors"
	"net"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/admin"
	"github.com/lockstepmq/lockstep/coordinator/admin/quota"
	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/gateway"
	"github.com/lockstepmq/lockstep/coordinator/maintenance"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/coordinator/replica/dedupe"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/lockstepmq/lockstep/rpc/peertls"
	"github.com/sirupsen/logrus"
)

// Options of a broker. Meta, Listen, FS, Dir and Node.Name are required.
type Options struct {
	Cluster string
	Node    metadata.NodeState // how the broker presents itself: name, addresses, zone, version

	FS       vfs.FS
	Dir      string         // the data path, locked by the caller
	NodeFile *nodefile.File // of the data path; nil: Start opens it
	// Mark returns the marks that distinguish the data path from a copy; nil: it has none.
	Mark         func() (nodefile.Marks, error)
	OnlyMember   bool   // this data path has the only copy of the metadata
	BootID       string // of the machine: a new one means that its page cache is lost
	NoSync       bool   // topics that do not require "sync" are acknowledged from the page cache
	SegmentBytes int64  // of one file of a log (64 MiB); retention removes whole files
	JournalBytes int64  // of one file of the journal (16 MiB)
	OpenFiles    int    // number of the store's files that stay open between uses (4096)
	SyncTogether int    // see store.Options (64)

	Meta        metadata.Store   // owned by the caller, closed after the broker
	Listen      net.Listener     // for other brokers; owned by the broker from Start on
	TLS         rpc.Identity     // nil: plain text
	Connections peertls.Limits   // limits for connections from other brokers; zero: rpc's default
	Token       []byte           // of the cluster
	Members     metadata.Members // nil: the metadata store is external
	// Dial connects to other brokers; nil: TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	SessionTTL   time.Duration  // 3 s
	RecountEvery time.Duration  // how often the boot counter is raised while data is written; 5 s
	Topics       admin.Defaults // 1 partition, 1 replica, sync, T_hold 3 s
	Limits       quota.Limits   // of topics, partitions and channels
	// NoteCreation records what a client's put or subscription created, or failed to create (err); nil: nothing is
	// recorded.
	NoteCreation func(who api.Requester, detail string, err error)
	// Linger is the least time between the beginnings of two passes of a core loop. A larger value lets a pass do more work:
	// less processor time, more latency.
	Linger      time.Duration
	CatchUpRate int64 // limit in bytes a second of this broker's reads for replicas that catch up; 0: no limit
	Maintenance maintenance.Settings

	Replica replica.Options // times and limits; Start fills in the identities
	Queue   nsqd.Options
	Gateway gateway.Options
	RPC     rpc.Times
	Log     logrus.FieldLogger
	Slow    time.Duration                          // puts and syncs slower than this are logged with their stage; 0: none
	Trace   func(*queue.Draft) func(engine.Stages) // engine.Options
	Metrics *metrics.Recorder                      // nil: nothing is recorded
	Events  *events.Recorder                       // nil: nothing is recorded
}

func (o Options) withDefaults() (Options, error) {
	if o.Meta == nil || o.Listen == nil || o.FS == nil || o.Dir == "" || o.Node.Name == "" {
		return o, errors.New("coordinator: Meta, Listen, FS, Dir and Node.Name must be given")
	}
	// Every broker has the same put limit (--put-hold); the last attempt arrives within a second after it.
	repeatFor := cmp.Or(o.Gateway.PutLimit, gateway.DefaultPutLimit) + time.Second
	o.Cluster = cmp.Or(o.Cluster, "lockstep")
	o.SessionTTL = cmp.Or(o.SessionTTL, 3*time.Second)
	o.RecountEvery = cmp.Or(o.RecountEvery, 5*time.Second)
	o.Topics.Partitions = cmp.Or(o.Topics.Partitions, 1)
	o.Topics.ReplicationFactor = cmp.Or(o.Topics.ReplicationFactor, 1)
	o.Topics.MinInSync = cmp.Or(o.Topics.MinInSync, admin.DefaultMinInSync(o.Topics.ReplicationFactor))
	o.Topics.Durability = cmp.Or(o.Topics.Durability, metadata.DurabilitySync)
	o.Topics.Hold = cmp.Or(o.Topics.Hold, 3*time.Second)
	o.Maintenance.RepeatFor = cmp.Or(o.Maintenance.RepeatFor, repeatFor)
	o.Maintenance.TrashGrace = cmp.Or(o.Maintenance.TrashGrace, time.Hour)
	o.Maintenance.TombstoneGrace = cmp.Or(o.Maintenance.TombstoneGrace, 5*time.Minute)
	o.Maintenance.DeleteGrace = o.Topics.DeleteGrace
	o.Log = cmp.Or[logrus.FieldLogger](o.Log, logrus.StandardLogger())
	if o.Node.RPCAddress == "" {
		o.Node.RPCAddress = o.Listen.Addr().String()
	}
	o.Replica.RepeatMS = cmp.Or(o.Replica.RepeatMS, max(replica.DefaultRepeatMS, 3*repeatFor.Milliseconds()))
	r := &o.Replica // the times and sizes of coordinator/replica/DESIGN.md 4.7
	r.ISRMS = cmp.Or(r.ISRMS, 1000)
	r.HoldMS = cmp.Or(r.HoldMS, 3000)
	r.WriteMS = cmp.Or(r.WriteMS, 3000)
	r.GraceMS = cmp.Or(r.GraceMS, 2000)
	r.RetryMS = cmp.Or(r.RetryMS, 200)
	r.ElectionMS = cmp.Or(r.ElectionMS, 50)
	r.WindowBytes = cmp.Or(r.WindowBytes, 8<<20)
	r.GroupBytes = cmp.Or(r.GroupBytes, 1<<20)
	r.TailBytes = cmp.Or(r.TailBytes, 16<<20)
	r.HeldBytes = cmp.Or(r.HeldBytes, 64<<20)
	r.Budget = cmp.Or(r.Budget, dedupe.NewBudget(dedupe.DefaultBudget))
	return o, nil
}
