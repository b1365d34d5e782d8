// Package metadata defines the cluster's metadata: the Store on etcd, and its keys and values.
//
// The package makes no decisions. The state of a partition is one key, changed only by a compare-and-swap on its ModRevision.
// A transaction whose answer was lost may still be applied later (ErrUnknown).
//
// # Invariants
//
//  1. Get and GetAll are linearizable; changes of a watch arrive in revision order without gaps. A failed read proves nothing.
//  2. ErrUnavailable, ErrNoLease, ErrInvalid and ErrClosed of a transaction prove that it did not happen. ErrUnknown proves
//     nothing.
//  3. A value that cannot be read (ErrValue) is never treated as an absent key.
//
// # Goroutines
//
// One for each watch and one for each lease. A watch ends with its context, a lease when it is lost; Close ends and waits for
// both.
//
// Keys below /lockstep/<cluster>/:
//
//	nodes/<n>                  permanent: addresses, zone, boot counter
//	live/<n>                   under the node's lease; CreateRevision = incarnation
//	controller                 under the lease of the controller's registration
//	topics/<name>              TopicState
//	channels/<topic id>/<ch>   ChannelState
//	partitions/<topic id>/<n>  PartitionState
//	users/<name>               a user with its rights (internal/auth/access)
//	invitations/<n>            a broker that may join (internal/auth/admission)
//	config, audit/…
package metadata

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd/lifecycle"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
)

var (
	// ErrUnknown means that a transaction may have happened, may happen later, or may never happen. Reading the old
	// revision back proves nothing.
	ErrUnknown = errors.New("metadata: outcome of the transaction is unknown")
	// ErrNotFound means that the key does not exist.
	ErrNotFound = errors.New("metadata: no such key")
	// ErrUnavailable means that the request did not happen.
	ErrUnavailable = errors.New("metadata: store is unavailable")
	// ErrNoLease means that a put names a lease that is gone; its transaction did not happen.
	ErrNoLease = errors.New("metadata: no such lease")
	// ErrInvalid means that the store refused the transaction for its content (too many operations, one key written twice): it
	// did not happen and never will.
	ErrInvalid = errors.New("metadata: transaction refused")
	// ErrWentBack means that the store was restored from a backup: changes that a watch has sent are undone, and the watch
	// would be silent until the old revision is reached again.
	ErrWentBack = errors.New("metadata: the store is older than it was, a backup was restored")
	// ErrClosed means that Close was called.
	ErrClosed = errors.New("metadata: store is closed")
)

// MaxTxn is the greatest number of compares, and of puts, in a transaction that every store accepts: an external etcd
// refuses more by default. The embedded etcd accepts EmbeddedMaxTxn.
const (
	MaxTxn         = 128
	EmbeddedMaxTxn = 2048
)

// Entry is one key as read. Create and Mod are store revisions.
type Entry struct {
	Key         string
	Value       []byte
	Create, Mod int64
	Lease       int64
}

// Compare is one condition of a transaction. For Create and Mod, 0 means that the key must not exist, and -1 means any
// revision.
type Compare struct {
	Key         string
	Create, Mod int64
}

// Put is one write of a transaction; Delete removes the key instead. Lease 0 attaches none.
type Put struct {
	Key    string
	Value  []byte
	Lease  int64
	Delete bool
}

// Change is one notification of a watch. With Reset, Puts is the whole state below the prefix (first delivery, compaction,
// reconnect), and everything else is gone. Changes arrive in revision order without gaps.
type Change struct {
	Revision int64
	Puts     []Entry
	Deletes  []string
	Reset    bool
}

// Store is a linearizable key-value store with transactions, watches and leases. All methods are safe for concurrent use.
type Store interface {
	// Get reads one key linearizably; ErrNotFound if it does not exist, ErrWentBack if the store is older than the changes
	// that its watches have sent.
	Get(ctx context.Context, key string) (Entry, error)
	// GetAll reads at most MaxTxn keys linearizably and at one revision. It omits keys that do not exist.
	GetAll(ctx context.Context, keys []string) ([]Entry, error)
	// List reads all keys below prefix at one revision, sorted by key.
	List(ctx context.Context, prefix string) ([]Entry, int64, error)
	// Txn applies all puts if all compares hold, and returns whether they held (ok) and the revision of the store after
	// it. ErrUnknown: it may have happened.
	Txn(ctx context.Context, cmp []Compare, puts []Put) (ok bool, rev int64, err error)
	// Watch sends a Reset change with the current state, then every later change below prefix. When ctx ends, it closes the
	// channel.
	Watch(ctx context.Context, prefix string) <-chan Change
	// Lease grants a lease that this process renews until Revoke or Close. lost is closed when the store answers that
	// the lease is gone.
	Lease(ctx context.Context, ttlSeconds int64) (id int64, lost <-chan struct{}, err error)
	// Revoke ends a lease, even one of another process, and deletes its keys. It succeeds if the lease does not exist.
	Revoke(ctx context.Context, id int64) error
	// Close stops renewals and watches; leases expire.
	Close() error
}

// Members changes the membership of the etcd that brokers embed.
type Members interface {
	// Remove permanently removes a broker's member, and succeeds if there is no such member. It fails if the other members would
	// have no majority.
	Remove(ctx context.Context, n ident.Node) error
	// NotifyDeath reports that a broker's process is certainly dead. If its member was the leader, the others can elect
	// a new one before the election timeout.
	NotifyDeath(ctx context.Context, n ident.Node) error
}

// Keys names the keys of one cluster.
type Keys struct{ Cluster string }

// Root is the prefix of everything: /lockstep/<cluster>/.
func (k Keys) Root() string { return "/lockstep/" + k.Cluster + "/" }

// Node is the permanent key of a broker.
func (k Keys) Node(n ident.Node) string { return k.Root() + "nodes/" + string(n) }

// Live is the key that a broker holds under its lease.
func (k Keys) Live(n ident.Node) string { return k.Root() + "live/" + string(n) }

// Controller is the key that the elected controller holds under its lease.
func (k Keys) Controller() string { return k.Root() + "controller" }

// Topic is the key of a topic, by name.
func (k Keys) Topic(name string) string { return k.Root() + "topics/" + name }

// Channel is the key of a channel of a topic.
func (k Keys) Channel(t ident.TopicID, name string) string {
	return k.Root() + "channels/" + t.String() + "/" + name
}

// Partition is the one key of a partition's state.
func (k Keys) Partition(p ident.Partition) string { return k.Root() + "partitions/" + p.String() }

// Durability is the meaning of an OK.
type Durability string

const (
	// DurabilitySync: synced to disk on every in-sync replica. The default.
	DurabilitySync Durability = "sync"
	// DurabilityReplicated: in the page cache of every in-sync replica. A power cut of all of them loses it.
	DurabilityReplicated Durability = "replicated"
)

// PartitionState is the value of a partition's key (version 1). Revision is set when it is read.
type PartitionState struct {
	V                 int               `json:"v"`
	Replicas          []ident.Node      `json:"replicas"`
	ISR               []ident.Member    `json:"isr"`
	Leader            ident.Node        `json:"leader"`
	LeaderIncarnation ident.Incarnation `json:"leader_incarnation"`
	Epoch             ident.Epoch       `json:"epoch"`
	MinInSync         int               `json:"min_in_sync"`
	Durability        Durability        `json:"durability"` // as of the topic's creation; the topic's key has the current value
	// Target lists the replicas that a move should end with, preferred leader first; empty: no move is in progress.
	Target []ident.Node `json:"target,omitempty"`
	// Abandoned is the last epoch of the history that an operator gave up by an unclean recovery; 0: none. A replica may have
	// the only copy of messages of that history.
	Abandoned ident.Epoch `json:"abandoned_epoch,omitempty"`
	Revision  int64       `json:"-"`
}

// UnderReplicated reports whether a replica is not in the in-sync set.
func (s PartitionState) UnderReplicated() bool { return len(s.ISR) < len(s.Replicas) }

// Clone copies the state with its slices.
func (s PartitionState) Clone() PartitionState {
	s.Replicas = append([]ident.Node(nil), s.Replicas...)
	s.ISR = append([]ident.Member(nil), s.ISR...)
	s.Target = append([]ident.Node(nil), s.Target...)
	return s
}

// TopicState is the value of a topic's key (version 1). A deleted topic keeps its key, with Deleted set, until the controller
// drops it.
type TopicState struct {
	V                 int           `json:"v"`
	ID                ident.TopicID `json:"id"`
	Partitions        int           `json:"partitions"`
	ReplicationFactor int           `json:"replication_factor"`
	MinInSync         int           `json:"min_in_sync"`
	Durability        Durability    `json:"durability"` // "": each broker's own
	Paused            bool          `json:"paused,omitempty"`
	Ordered           bool          `json:"ordered,omitempty"`
	Deleted           bool          `json:"deleted,omitempty"`
	// Trashed: the topic was deleted with a grace, and a Trash key exists, or existed, for its id. Replicas are removed
	// only after that key is removed.
	Trashed      bool         `json:"trashed,omitempty"`
	DeletedAtMS  int64        `json:"deleted_at_ms,omitempty"`
	FirstChannel string       `json:"first_channel,omitempty"`
	Options      TopicOptions `json:"options,omitzero"`
	// Owner is the user who created the topic and whose quota counts it; "": none.
	Owner string `json:"owner,omitempty"`
	// Growing is the number of partitions that the topic is about to have; 0: it does not grow. The new partitions have
	// keys and leaders, but accept no puts before they have all channels.
	Growing int `json:"growing,omitempty"`

	Revision int64 `json:"-"`
}

// Span is the number of partitions that have keys, new ones included.
func (t TopicState) Span() int { return max(t.Partitions, t.Growing) }

// Partition names one of the topic's partitions.
func (t TopicState) Partition(n int) ident.Partition {
	return ident.Partition{Topic: t.ID, Number: uint16(n)}
}

// PartitionMaxBytes is one partition's share of max_bytes; 0: no limit.
func (t TopicState) PartitionMaxBytes() int64 {
	if t.Options.MaxBytes <= 0 {
		return 0
	}
	return max(1, t.Options.MaxBytes/int64(t.Partitions))
}

// DedupeWindow is the time in ms within which a leader recognises a repeated message id.
func (t TopicState) DedupeWindow() int64 {
	return cmp.Or(t.Options.DedupeWindowMS, option.DefaultDedupeWindowMS)
}

// TopicOptions are the options of a topic; package option has their table.
type TopicOptions = option.Topic

// ChannelState is the value of a channel's key (version 1).
type ChannelState struct {
	V       int    `json:"v"`
	ID      uint64 `json:"id"`
	From    string `json:"from,omitempty"` // earliest | latest | <unix ns> | <sequence>; "" = by the rules
	First   bool   `json:"first,omitempty"`
	Ordered bool   `json:"ordered,omitempty"`
	Paused  bool   `json:"paused,omitempty"`

	// Deleting: clients can no longer subscribe. The key is removed when no leader has the channel.
	Deleting bool `json:"deleting,omitempty"`

	Policy option.Policy `json:"policy,omitzero"`

	// Owner is the user who created the channel and whose quota counts it; "": none.
	Owner string `json:"owner,omitempty"`

	Revision int64 `json:"-"`
}

// NodeState is the value of nodes/<n> and live/<n> (version 1).
type NodeState struct {
	V                int        `json:"v"`
	Name             ident.Node `json:"name"`
	BroadcastAddress string     `json:"broadcast_address"`
	Hostname         string     `json:"hostname"`
	TCPPort          int        `json:"tcp_port"`
	HTTPPort         int        `json:"http_port"`
	HTTPSPort        int        `json:"https_port,omitempty"` // 0: it has none
	RPCAddress       string     `json:"rpc_address"`
	Zone             string     `json:"zone"`
	Region           string     `json:"region"`
	Version          string     `json:"version"`                    // the version of NSQ that the broker speaks
	Build            string     `json:"lockstep_version,omitempty"` // of the product
	Lease            int64      `json:"lease,omitempty"`            // in live/<n>: the lease, so that a peer may revoke it
	Boot             int64      `json:"boot,omitempty"`             // in nodes/<n>: boot counter, to detect a restored data path
	Disk             string     `json:"disk,omitempty"`             // id of the data path (coordinator/metadata/nodefile)
	// Starts, in nodes/<n>, are the broker's latest starts.
	Starts       []lifecycle.StartRecord `json:"starts,omitempty"`
	Transferring bool                    `json:"handing_over,omitempty"`
	// Unreachable lists the brokers from which this one receives nothing. It is set only while the broker leads a partition
	// that lacks its minimum for that reason: the others may then replace the leader.
	Unreachable []ident.Node `json:"unreached,omitempty"`
	// Leaving, in nodes/<n>: an operator decommissions the broker; its replicas are moved to others.
	Leaving bool `json:"leaving,omitempty"`
	// Drain, in nodes/<n>: an operator drains the broker, which stays a member.
	Drain Drain `json:"drain,omitempty"`
	// Level is the highest feature level that the broker's build supports.
	Level int `json:"feature_level,omitempty"`
}

// Drain is what an operator drains from a broker; "" = nothing.
type Drain string

const (
	// DrainLeaders: the broker's leaderships move to other in-sync replicas, and it gets no new replica.
	DrainLeaders Drain = "leaders"
	// DrainReplicas: the broker's replicas also move to other brokers.
	DrainReplicas Drain = "replicas"
)

// Level is the feature level of this build. A change of a format or message that earlier builds cannot read raises the
// level by one, and is used only when the cluster's level has reached it.
const Level = 1

// ClusterState is the value of the config key (version 1).
type ClusterState struct {
	V        int   `json:"v"`
	Level    int   `json:"feature_level"` // all brokers support it; it never falls
	Revision int64 `json:"-"`
}

// Encode writes a value. Values are JSON, so that operators can read them.
func Encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("metadata: value does not marshal: " + err.Error()) // plain structs always do
	}
	return b
}

// Version is the version that this binary writes into values, and the highest that it reads.
const Version = 1

// ErrValue means that a value is not JSON, or was written by a newer version. It must never be treated as an absent key.
var ErrValue = errors.New("metadata: value cannot be read")

// DecodePartition reads the value of a partition's key.
func DecodePartition(e Entry) (PartitionState, error) {
	return decode(e, func(s *PartitionState) (*int, *int64) { return &s.V, &s.Revision })
}

// DecodeTopic reads the value of a topic's key.
func DecodeTopic(e Entry) (TopicState, error) {
	return decode(e, func(s *TopicState) (*int, *int64) { return &s.V, &s.Revision })
}

// DecodeChannel reads the value of a channel's key.
func DecodeChannel(e Entry) (ChannelState, error) {
	return decode(e, func(s *ChannelState) (*int, *int64) { return &s.V, &s.Revision })
}

// DecodeNode reads the value of nodes/<n> or live/<n>.
func DecodeNode(e Entry) (NodeState, error) {
	return decode(e, func(s *NodeState) (*int, *int64) { return &s.V, new(int64) })
}

// DecodeCluster reads the value of the config key.
func DecodeCluster(e Entry) (ClusterState, error) {
	return decode(e, func(s *ClusterState) (*int, *int64) { return &s.V, &s.Revision })
}

// DecodeTrash reads the value of a Trash key.
func DecodeTrash(e Entry) (TrashState, error) {
	s, err := decode(e, func(s *TrashState) (*int, *int64) { return &s.V, &s.Revision })
	s.Created = e.Create
	return s, err
}

// DecodeClock reads the value of the clock's key.
func DecodeClock(e Entry) (ClockState, error) {
	return decode(e, func(s *ClockState) (*int, *int64) { return &s.V, &s.Revision })
}

// decode reads a value. fields returns pointers to its version and revision.
func decode[S any](e Entry, fields func(*S) (version *int, revision *int64)) (s S, err error) {
	version, revision := fields(&s)
	*revision = e.Mod
	if err := json.Unmarshal(e.Value, &s); err != nil {
		return s, fmt.Errorf("%w: %s: %v", ErrValue, e.Key, err)
	}
	if *version < 1 || *version > Version {
		return s, fmt.Errorf("%w: %s: version %d, this binary reads up to %d", ErrValue, e.Key, *version, Version)
	}
	return s, nil
}

// Tombstoned reports whether a linearizable read of a topic's tombstone proves that the topic is permanently deleted:
// only a tombstone that was found is proof. An absent key and a failed read prove nothing.
func Tombstoned(read error) bool { return read == nil }
