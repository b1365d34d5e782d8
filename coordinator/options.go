package coordinator

import (
	"cmp"
	"context"
	"errors"
	"net"
	"path"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/admin"
	"github.com/lockstepmq/lockstep/coordinator/admin/quota"
	"github.com/lockstepmq/lockstep/coordinator/engine"
	"github.com/lockstepmq/lockstep/coordinator/gateway"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/nodefile"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/coordinator/replica/dedupe"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
	"github.com/lockstepmq/lockstep/rpc/peertls"
	"github.com/sirupsen/logrus"
)

// Options of a broker. Meta, Listen, FS, Dir and Node.Name must be given.
type Options struct {
	Cluster string
	// Node is how the broker presents itself: name, addresses, zone, version.
	Node metadata.NodeState

	FS  vfs.FS
	Dir string // the data path, locked by the caller
	// NodeFile is the node file of the data path; nil: Start opens it.
	NodeFile *nodefile.File
	// Mark gives the marks that distinguish the data path from a copy; nil: it has none.
	Mark func() (nodefile.Marks, error)
	// OnlyMember: this data path has the only copy of the metadata.
	OnlyMember bool
	BootID     string // of the machine; a new boot id means that its page cache is lost
	NoSync     bool   // topics that do not require "sync" are acknowledged from the page cache
	// SegmentBytes is the size of one file of a log (64 MiB); retention removes
	// whole files.
	SegmentBytes int64
	// JournalBytes is the size of one file of the journal (16 MiB).
	JournalBytes int64
	// OpenFiles bounds the files of the store that stay open between uses (4096).
	OpenFiles int

	// MinFreeBytes and MaxDiskBytes are the disk reserve: while less is free, or the logs
	// take more, puts to all partitions with a replica on this broker are refused. 0 = no
	// limit.
	MinFreeBytes, MaxDiskBytes int64

	Meta   metadata.Store // owned by the caller, closed after the broker
	Listen net.Listener   // for other brokers; owned by the broker from Start on
	TLS    rpc.Identity   // nil = plain
	// Connections bounds the connections from other brokers; the zero value is rpc's
	// default.
	Connections peertls.Limits
	Token       []byte // of the cluster

	// Members changes the membership of the embedded metadata store; nil = the store is
	// external.
	Members Members

	// Dial connects to other brokers; nil = TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	SessionTTL        time.Duration // 3 s
	RecountEvery      time.Duration // raises the boot counter while data is written; 5 s
	RepeatFor         time.Duration // edges may repeat a put, whatever channels have passed; by the put limit
	Partitions        int           // of a topic made without saying; 1
	ReplicationFactor int           // likewise; the configured size of the cluster
	MinInSync         int           // likewise; 0 = by admin.DefaultMinInSync
	Durability        metadata.Durability
	TopicOptions      metadata.TopicOptions // likewise: retention and limits
	TopicDefaults     []option.Default      // by patterns of names; the first that matches counts
	NoAutoCreate      bool
	Limits            quota.Limits // of topics, partitions and channels
	// NoteCreation records what a client's put or subscription created, or would have created
	// (err); nil = it is not recorded.
	NoteCreation func(who api.Requester, detail string, err error)
	// MayPublish reports whether a user may publish to a topic now; nil: rights are not enforced.
	MayPublish func(user, topic string) bool
	// KnownChannels returns the channels that the external nsqlookupds have of a new topic;
	// nil = there is no nsqlookupd.
	KnownChannels func(ctx context.Context, topic string) []string
	// Linger is the least time between the beginnings of two passes of a core loop. A
	// larger value lets a pass do more work: less processor time, more latency.
	Linger            time.Duration
	CatchUpRate       int64         // bytes a second that this broker reads for replicas that catch up; 0 = no limit
	Hold              time.Duration // T_hold, 3 s: waits of puts and of topic creation
	TombstoneLifetime time.Duration // of deleted topics, and of nodes hidden from /lookup
	TrashGrace        time.Duration // how long the files of a topic are kept that was deleted for good
	DeleteGrace       time.Duration // how long a deleted topic can be undeleted; 0 = it cannot
	DeleteEarly       bool          // deleted topics go for good before that while a disk is below its reserve
	TombstoneGrace    time.Duration // how long all brokers have to be live before its tombstone is collected, 5 min

	Replica replica.Options // the times; identities are filled in
	Queue   nsqd.Options
	Gateway gateway.Options
	RPC     rpc.Times
	Log     logrus.FieldLogger
	// Slow is the duration from which puts and syncs of the journal are logged, with their stage; 0
	// = none is.
	Slow    time.Duration
	Trace   func(*queue.Draft) func(engine.Stages) // engine.Options
	Metrics *metrics.Recorder                      // nil = nothing is recorded
	Events  *events.Recorder                       // nil = none is kept
}

// Members is the membership of the embedded metadata store.
type Members interface {
	// Remove removes a broker's member for good. If there is no such member, that is no
	// error. Remove fails if the other members would have no majority.
	Remove(ctx context.Context, n ident.Node) error
	// NotifyDeath reports that a broker's process is dead for certain. If its member led, the
	// others can elect a leader without waiting for the election timeout.
	NotifyDeath(ctx context.Context, n ident.Node) error
}

func (o Options) withDefaults() (Options, error) {
	if o.Meta == nil || o.Listen == nil || o.FS == nil || o.Dir == "" || o.Node.Name == "" {
		return o, errors.New("coordinator: Meta, Listen, FS, Dir and Node.Name must be given")
	}
	def(&o.Cluster, "lockstep")
	def(&o.SessionTTL, 3*time.Second)
	def(&o.RecountEvery, 5*time.Second)
	def(&o.RepeatFor, repeatFor(o.Gateway.PutLimit))
	def(&o.Partitions, 1)
	def(&o.ReplicationFactor, 1)
	def(&o.MinInSync, admin.DefaultMinInSync(o.ReplicationFactor))
	def(&o.Durability, metadata.DurabilitySync)
	def(&o.Hold, 3*time.Second)
	def(&o.TombstoneLifetime, 45*time.Second)
	def(&o.TrashGrace, time.Hour)
	def(&o.TombstoneGrace, 5*time.Minute)
	if o.Log == nil {
		o.Log = logrus.StandardLogger()
	}
	if o.Node.RPCAddress == "" {
		o.Node.RPCAddress = o.Listen.Addr().String()
	}
	def(&o.Replica.RepeatMS, max(replica.DefaultRepeatMS, 3*repeatFor(o.Gateway.PutLimit).Milliseconds()))
	o.Replica = replicaDefaults(o.Replica)
	return o, nil
}

// repeatFor is how long after its append an edge may repeat a put, by its put limit. Every
// broker has the same put limit (--put-hold); the second is for the way of the last attempt.
func repeatFor(putLimit time.Duration) time.Duration {
	return cmp.Or(putLimit, gateway.DefaultPutLimit) + time.Second
}

// topicDefaults are the settings of topics that are created without explicit ones.
func (o Options) topicDefaults() admin.Defaults {
	return admin.Defaults{
		Partitions: o.Partitions, ReplicationFactor: o.ReplicationFactor, MinInSync: o.MinInSync,
		Durability: o.Durability, Options: o.TopicOptions, NoAutoCreate: o.NoAutoCreate, DeleteGrace: o.DeleteGrace,
		Hold: o.Hold, KnownChannels: o.KnownChannels, For: o.defaultsFor,
	}
}

// defaultsFor are the defaults of the topic with this name.
func (o Options) defaultsFor(name string, d admin.Defaults) admin.Defaults {
	at := slices.IndexFunc(o.TopicDefaults, func(t option.Default) bool { ok, _ := path.Match(t.Pattern, name); return ok })
	if at < 0 {
		return d
	}
	t := o.TopicDefaults[at]
	d.Partitions, d.Durability = cmp.Or(t.Partitions, d.Partitions), cmp.Or(metadata.Durability(t.Durability), d.Durability)
	if t.ReplicationFactor != 0 {
		d.ReplicationFactor, d.MinInSync = t.ReplicationFactor, cmp.Or(t.MinInSync, admin.DefaultMinInSync(t.ReplicationFactor))
	}
	d.Ordered = t.Ordered
	t.Options.Apply(&d.Options)
	return d
}

// replicaDefaults are the times and sizes of coordinator/replica/DESIGN.md 4.7.
func replicaDefaults(o replica.Options) replica.Options {
	def(&o.ISRMS, 1000)
	def(&o.HoldMS, 3000)
	def(&o.WriteMS, 3000)
	def(&o.GraceMS, 2000)
	def(&o.RetryMS, 200)
	def(&o.ElectionMS, 50)
	def(&o.WindowBytes, 8<<20)
	def(&o.GroupBytes, 1<<20)
	def(&o.TailBytes, 16<<20)
	def(&o.HeldBytes, 64<<20)
	if o.Budget == nil {
		o.Budget = dedupe.NewBudget(dedupe.DefaultBudget)
	}
	return o
}

// def sets *v where it is zero.
func def[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}
