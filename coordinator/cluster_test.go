package coordinator_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/coordinator"
	"github.com/lockstepmq/lockstep/coordinator/admin"
	"github.com/lockstepmq/lockstep/coordinator/admin/quota"
	"github.com/lockstepmq/lockstep/coordinator/maintenance"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/events"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of these tests; nothing here takes as long.
const patience = wait.Limit

// cluster is some brokers in one process: one memory store of metadata, a
// memory file system for each broker, pipes between them.
type cluster struct {
	t     testing.TB
	meta  *metadatatest.Memory
	log   *logrus.Logger
	size  int
	disks map[string]*vfstest.Memory
	nodes map[string]*broker

	sessions       map[string]*metadatatest.Memory // each broker's way to the metadata
	segmentBytes   int64                           // 0 = the default
	level          int                             // feature level of the builds that are started; 0 = this build's
	minFree        int64                           // of every disk
	maxDisk        int64                           // for the logs of every broker; 0 = any
	tombstoneGrace time.Duration                   // how long the tombstones of deleted topics stay; 0 = the default
	deleteGrace    time.Duration                   // how long a deleted topic can be undeleted; 0 = it cannot
	deleteEarly    bool
	trashGrace     time.Duration // how long the files of deleted topics stay; 0 = the default
	recount        time.Duration // how often the boot counter is raised; 0 = the default
	hold           time.Duration // T_hold; 0 = 20 s
	linger         time.Duration // between the rounds of replication
	topicDefaults  []option.Default
	catchUpRate    int64 // bytes a second for replicas that catch up; 0 = no limit
	mayPublish     func(user, topic string) bool
	noSync         bool                // durability "replicated"
	durability     metadata.Durability // of new topics; "" = the default
	hook           vfstest.Hook        // sees the calls to every disk; nil = none
	members        *members            // of the metadata store; nil = the brokers embed none
	events         map[string]*events.Recorder
	metrics        *metrics.Recorder // of all brokers; nil = none
	net            *network          // between the brokers
	mu             *sync.Mutex       // of sessions

	rpc    rpc.Times                                         // of the connections between brokers; 0 = the defaults
	limits quota.Limits                                      // of topics, partitions and channels
	note   func(who api.Requester, detail string, err error) // nil = nothing is noted

	wrap func(name string, s metadata.Store) metadata.Store // the metadata as a broker sees it; nil = as it is
}

// broker is a broker with the methods of its components.
type broker struct {
	*coordinator.Broker
	operations
	api.Directory
	api.Inspector
}

type operations interface {
	api.Admin
	api.Planner
	api.Channels
	api.Tracer
	api.Recovery
	CreateChannel(ctx context.Context, topic, channel, from string, ordered bool) error
}

func newCluster(t *testing.T, size int) *cluster { return newClusterOf(t, cluster{size: size}) }

// newClusterOf starts a cluster with settings of its own.
func newClusterOf(t testing.TB, o cluster) *cluster {
	size := o.size
	c := &cluster{
		wrap: o.wrap, rpc: o.rpc, limits: o.limits, note: o.note, mayPublish: o.mayPublish, net: newNetwork(), segmentBytes: o.segmentBytes, minFree: o.minFree, maxDisk: o.maxDisk, recount: o.recount, hold: cmp.Or(o.hold, 20*time.Second), topicDefaults: o.topicDefaults, linger: o.linger, catchUpRate: o.catchUpRate, noSync: o.noSync, durability: cmp.Or(o.durability, durabilityOf(o.noSync)), level: cmp.Or(o.level, metadata.Level), tombstoneGrace: o.tombstoneGrace, trashGrace: o.trashGrace, deleteGrace: o.deleteGrace, deleteEarly: o.deleteEarly, hook: o.hook, members: o.members, events: o.events, metrics: o.metrics, sessions: map[string]*metadatatest.Memory{}, mu: &sync.Mutex{},
		t: t, meta: metadatatest.NewMemory(), log: logrus.New(), size: size,
		disks: map[string]*vfstest.Memory{}, nodes: map[string]*broker{},
	}
	c.log.SetOutput(io.Discard)
	if os.Getenv("LOCKSTEP_TEST_LOG") != "" {
		c.log.SetOutput(os.Stderr)
		c.log.SetLevel(logrus.DebugLevel)
	}
	t.Cleanup(func() {
		for name := range c.nodes {
			c.kill(name)
		}
		require.NoError(t, c.meta.Close())
	})
	var starts sync.WaitGroup
	var mu sync.Mutex
	for i := range size {
		c.disks[fmt.Sprintf("n%d", i+1)] = vfstest.NewMemory()
	}
	for name := range c.disks {
		starts.Go(func() {
			b := c.launch(name)
			mu.Lock()
			defer mu.Unlock()
			c.nodes[name] = b
		})
	}
	starts.Wait()
	return c
}

// launch starts a broker on its disk.
func (c *cluster) launch(name string) *broker {
	b, err := c.tryLaunch(name)
	require.NoError(c.t, err)
	return b
}

// tryLaunch is launch where it may fail.
func (c *cluster) tryLaunch(name string) (*broker, error) {
	session := c.meta.Session()
	var seen metadata.Store = session
	if c.wrap != nil {
		seen = c.wrap(name, session)
	}
	c.mu.Lock()
	c.sessions[name] = session
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var beside metadata.Members
	if c.members != nil {
		beside = member{c.members, name}
	}
	b, err := coordinator.Start(ctx, coordinator.Options{
		Cluster: "test", Node: metadata.NodeState{Name: ident.Node(name), BroadcastAddress: "127.0.0.1", HTTPPort: 1000 + int(name[len(name)-1]), Build: "9.8.7", Level: c.level},
		SegmentBytes: c.segmentBytes, JournalBytes: 256 << 10,
		FS: c.fs(name), Dir: "/data", BootID: "boot", Meta: seen, Members: beside, Listen: c.net.listen(name), Dial: c.net.dialer(name),
		Topics: admin.Defaults{AutoCreate: true, ReplicationFactor: c.size, Durability: c.durability, Hold: c.hold, DeleteGrace: c.deleteGrace, ByName: c.topicDefaults},
		Maintenance: maintenance.Settings{
			MinFreeBytes: c.minFree, MaxDiskBytes: c.maxDisk, RepeatFor: time.Millisecond, DeleteEarly: c.deleteEarly, TrashGrace: c.trashGrace,
			TombstoneGrace: c.tombstoneGrace, MayPublish: c.mayPublish,
		},
		RecountEvery: c.recount, Linger: c.linger, CatchUpRate: c.catchUpRate, NoSync: c.noSync, Limits: c.limits, NoteCreation: c.note, Replica: replica.Options{Check: true}, RPC: c.rpc, Events: c.events[name], Metrics: c.metrics, Log: c.log.WithField("on", name),
	})
	if err != nil {
		return nil, err
	}
	return &broker{b, b.Admin, b.Directory, b.Inspector}, nil
}

// fs is a broker's disk as the broker sees it. Names begin with the broker's.
func (c *cluster) fs(name string) vfs.FS {
	if c.hook == nil {
		return c.disks[name]
	}
	return vfstest.Wrap(c.disks[name], func(op vfstest.Op) error {
		op.Name = name + op.Name
		return c.hook(op)
	})
}

// kill ends a broker as a crash does, as far as the others can see: its sockets
// close, its registration stays until another broker revokes it.
func (c *cluster) kill(name string) {
	if b := c.nodes[name]; b != nil {
		delete(c.nodes, name)
		b.Close()
	}
}

// wipe gives a dead broker another disk. It also ends the registration of the broker,
// because no other data path may take the name over before.
func (c *cluster) wipe(name string) {
	c.disks[name] = vfstest.NewMemory()
	e, err := c.meta.Get(context.Background(), metadata.Keys{Cluster: "test"}.Live(ident.Node(name)))
	if err == nil {
		c.meta.Expire(e.Lease)
	}
}

func (c *cluster) restart(name string) {
	c.nodes[name] = c.launch(name)
}

// eventually waits for a condition.
func (c *cluster) eventually(ok func() bool, what string, args ...any) {
	c.t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(patience); !ok(); <-again.C {
		if time.Now().After(end) {
			c.t.Fatalf("waited %s in vain: %s", patience, fmt.Sprintf(what, args...))
		}
	}
}

// leader waits until one broker serves partition 0 of a topic.
func (c *cluster) leader(topic string) string {
	c.t.Helper()
	var found string
	c.eventually(func() bool {
		for name, b := range c.nodes {
			if t, ok := b.Topic(topic); ok && b.Leads(t.Partition(0)) {
				found = name
				return true
			}
		}
		return false
	}, "nobody leads %s", topic)
	return found
}

// durabilityOf is the durability of new topics on brokers that are started so.
func durabilityOf(noSync bool) metadata.Durability {
	if noSync {
		return metadata.DurabilityReplicated
	}
	return metadata.DurabilitySync
}

// cached waits until a topic's puts are acknowledged from the page cache, if they are to be.
func (c *cluster) cached(s *syncCounter, topic string) {
	c.t.Helper()
	if !c.noSync {
		return
	}
	for name := range c.nodes {
		c.eventually(func() bool {
			return s.during(name, func() { require.NoError(c.t, c.put("n1", topic, "m")) }) == 0
		}, "%s does not use its page cache", name)
	}
}

// leads reports whether a broker serves partition 0 of a topic.
func (c *cluster) leads(on, topic string) bool {
	t, ok := c.nodes[on].Topic(topic)
	return ok && c.nodes[on].Leads(t.Partition(0))
}

// answers collects the answers of puts.
type answers chan api.PutResult

func (a answers) Answer(r api.PutResult) { a <- r }

// put publishes one message on a broker and waits for its answer.
func (c *cluster) put(on, topic, body string) error {
	c.t.Helper()
	p := c.nodes[on].Gateway
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.Admit(ctx, topic, len(body)); err != nil {
		return err
	}
	d := queue.NewDraft(len(body))
	_ = d.AddMessage(queue.Message{Body: []byte(body)})
	a := make(answers, 1)
	p.Publish(topic, api.AnyPartition, nil, d.Draft(ident.RequestID{}), a)
	select {
	case r := <-a:
		return r.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// view is a topic as a broker shows it in /v1/cluster.
func (c *cluster) view(on, topic string) (api.TopicView, bool) {
	for _, t := range c.nodes[on].Cluster().Topics {
		if t.Topic == topic {
			return t, true
		}
	}
	return api.TopicView{}, false
}

// whole waits until all replicas of a topic are in sync again and hold the same
// bytes. Each replica trims its log in its own time.
func (c *cluster) whole(topic string) {
	c.t.Helper()
	c.eventually(func() bool {
		var first *api.Digest
		for name, b := range c.nodes {
			v, ok := c.view(name, topic)
			if !ok || v.Partitions[0].UnderReplicated || v.Partitions[0].Leader == "" {
				return false
			}
			d, err := b.Digest(api.DigestRequest{Topic: topic})
			if err != nil || d.Next != d.Committed || d.Committed != d.End {
				return false
			}
			if first == nil {
				first = &d
			} else if !equalBatches(first.Batches, d.Batches) {
				return false
			}
		}
		return first != nil && len(c.nodes) == c.size
	}, "%s does not heal", topic)
}

// digest is the digest of a broker's replica.
func (c *cluster) digest(on, topic string) api.Digest {
	c.t.Helper()
	d, err := c.nodes[on].Digest(api.DigestRequest{Topic: topic})
	require.NoError(c.t, err)
	return d
}

// equalBatches compares two logs of the same end from the later of their starts on.
func equalBatches(a, b []api.BatchDigest) bool {
	n := min(len(a), len(b))
	return slices.Equal(a[len(a)-n:], b[len(b)-n:]) && (n > 0 || len(a) == len(b))
}

// drain reads all messages of a topic through a broker and finishes them.
func (c *cluster) drain(on, topic string, want int) map[string]int {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	sub, err := c.nodes[on].Gateway.Subscribe(ctx, api.SubscribeRequest{
		Topic: topic, Channel: "drain", Partition: -1, Client: func() api.ClientStats { return api.ClientStats{} },
	})
	require.NoError(c.t, err)
	defer sub.Close(true)
	sub.SetReady(100)
	got := map[string]int{}
	for {
		credit := 100 - sub.InFlight()
		pulled := sub.Pull(credit, nil)
		for _, d := range pulled {
			got[string(d.Message.Body)]++
			require.NoError(c.t, sub.Finish(d.ID))
		}
		if len(got) >= want {
			return got
		}
		if len(pulled) == credit {
			continue // a full pull is not followed by a wake-up
		}
		select {
		case <-sub.Wake():
		case <-ctx.Done():
			require.FailNow(c.t, "not everything arrived", "%d of %d", len(got), want)
		}
	}
}

// expire removes a broker's registration, as the metadata store does when the lease was
// not renewed for the session's TTL.
func (c *cluster) expire(name string) {
	c.t.Helper()
	e, err := c.meta.Get(context.Background(), metadata.Keys{Cluster: "test"}.Live(ident.Node(name)))
	require.NoError(c.t, err)
	c.meta.Expire(e.Lease)
}
