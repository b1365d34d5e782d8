package metadata

import (
	"strconv"
	"strings"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Nodes is the prefix of all Node keys.
func (k Keys) Nodes() string { return k.Root() + "nodes/" }

// Topics is the prefix of all Topic keys.
func (k Keys) Topics() string { return k.Root() + "topics/" }

// Channels is the prefix of the channels of one topic.
func (k Keys) Channels(t ident.TopicID) string { return k.Root() + "channels/" + t.String() + "/" }

// Partitions is the prefix of all Partition keys.
func (k Keys) Partitions() string { return k.Root() + "partitions/" }

// Config is the key of the ClusterState.
func (k Keys) Config() string { return k.Root() + "config" }

// Users is the prefix of all User keys.
func (k Keys) Users() string { return k.Root() + "users/" }

// User is the key of a user with its rights (internal/auth/access).
func (k Keys) User(name string) string { return k.Users() + name }

// ParseUser returns the name of a user from its key.
func (k Keys) ParseUser(key string) (string, bool) { return parseName[string](key, k.Users()) }

// Invitations is the prefix of all Invitation keys.
func (k Keys) Invitations() string { return k.Root() + "invitations/" }

// Invitation is the key of a broker's invitation (internal/auth/admission).
func (k Keys) Invitation(node string) string { return k.Invitations() + node }

// ParseInvitation returns the name of a broker from the key of its invitation.
func (k Keys) ParseInvitation(key string) (string, bool) {
	return parseName[string](key, k.Invitations())
}

// Audit is the key of one audit record; names that begin with a time sort by time.
func (k Keys) Audit(name string) string { return k.Root() + "audit/" + name }

// Tombstones is the prefix of all Tombstone keys.
func (k Keys) Tombstones() string { return k.Audit("deleted-topics/") }

// Tombstone is the key that marks a topic id as permanently deleted, even after a new topic has taken the name, so that
// a broker that was not running removes the files.
func (k Keys) Tombstone(t ident.TopicID) string { return k.Tombstones() + t.String() }

// ParseNode returns the node of a key made by Node.
func (k Keys) ParseNode(key string) (ident.Node, bool) { return parseName[ident.Node](key, k.Nodes()) }

// ParseLive returns the node of a key made by Live.
func (k Keys) ParseLive(key string) (ident.Node, bool) {
	return parseName[ident.Node](key, k.Root()+"live/")
}

// ParseTopic returns the name of a topic from its key.
func (k Keys) ParseTopic(key string) (string, bool) { return parseName[string](key, k.Topics()) }

// ParseChannel returns topic and channel of a key made by Channel.
func (k Keys) ParseChannel(key string) (ident.TopicID, string, bool) {
	rest, ok := strings.CutPrefix(key, k.Root()+"channels/")
	if !ok {
		return 0, "", false
	}
	id, name, ok := cutTopicID(rest)
	return id, name, ok && name != ""
}

// ParsePartition returns the partition of a key made by Partition.
func (k Keys) ParsePartition(key string) (ident.Partition, bool) {
	rest, ok := strings.CutPrefix(key, k.Partitions())
	if !ok {
		return ident.Partition{}, false
	}
	id, number, ok := cutTopicID(rest)
	if !ok {
		return ident.Partition{}, false
	}
	n, err := strconv.ParseUint(number, 10, 16)
	return ident.Partition{Topic: id, Number: uint16(n)}, err == nil
}

func parseName[N ~string](key, prefix string) (N, bool) {
	name, ok := strings.CutPrefix(key, prefix)
	return N(name), ok && name != ""
}

// cutTopicID splits "<16 hex digits>/<rest>".
func cutTopicID(s string) (ident.TopicID, string, bool) {
	head, rest, ok := strings.Cut(s, "/")
	if !ok || len(head) != 16 {
		return 0, "", false
	}
	var id ident.TopicID
	return id, rest, id.UnmarshalText([]byte(head)) == nil
}

// TrashState is the value of the key of a topic that was deleted with a grace (version 1). The keys of its partitions
// and channels stay: its replicas continue to replicate, but accept no puts.
type TrashState struct {
	V     int        `json:"v"`
	Name  string     `json:"name"`
	Topic TopicState `json:"topic"` // as it was
	// GraceMS is the time for which the topic can be undeleted, in ms of the cluster's clock.
	GraceMS int64 `json:"grace_ms"`
	// SeenMS is the time of the cluster's clock when the controller first saw this key; 0: the grace has not begun.
	SeenMS int64 `json:"seen_ms,omitempty"`
	// Purging: the topic is being permanently removed, and can no longer be undeleted.
	Purging bool   `json:"purging,omitempty"`
	By      string `json:"by,omitempty"` // the client that deleted it; "": not known
	// DeletedAtMS is a time of day, for operators only: no decision depends on it.
	DeletedAtMS int64 `json:"deleted_at_ms"`
	Revision    int64 `json:"-"`
	// Created is the revision of the deletion: later deletions have larger ones.
	Created int64 `json:"-"`
}

// ClockState is the value of the key of the cluster's clock (version 1): the time in ms that controllers have counted, each by
// its process's monotonic clock. It stops while there is no controller, so it never runs ahead.
type ClockState struct {
	V         int   `json:"v"`
	ElapsedMS int64 `json:"elapsed_ms"`
	Revision  int64 `json:"-"`
}

// Trashes is the prefix of all Trash keys.
func (k Keys) Trashes() string { return k.Root() + "trash/" }

// Trash is the key of a topic that was deleted with a grace.
func (k Keys) Trash(t ident.TopicID) string { return k.Trashes() + t.String() }

// ParseTrash returns the topic of a key made by Trash.
func (k Keys) ParseTrash(key string) (ident.TopicID, bool) {
	name, ok := strings.CutPrefix(key, k.Trashes())
	if !ok {
		return 0, false
	}
	id, rest, ok := cutTopicID(name + "/")
	return id, ok && rest == ""
}

// Clock is the key of the ClockState.
func (k Keys) Clock() string { return k.Root() + "clock" }
