package metadata

import (
	"strings"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// TrashState is the value of the key of a topic that was deleted with a grace (version 1). The keys of its partitions and
// channels stay: its replicas continue to replicate, and take no puts.
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

// ParseTrash gives the topic of a key made by Trash.
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
