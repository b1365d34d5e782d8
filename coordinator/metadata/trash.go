package metadata

import (
	"strings"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// TrashState is the value of the key of a topic that was deleted with a grace (version 1). The keys
// of its partitions and channels stay: its replicas keep replicating, and take no puts.
type TrashState struct {
	V     int        `json:"v"`
	Name  string     `json:"name"`
	Topic TopicState `json:"topic"` // as it was
	// GraceMS is the time for which the topic can be undeleted, in ms of the cluster's clock.
	GraceMS int64 `json:"grace_ms"`
	// SeenMS is what the cluster's clock had counted when the controller first saw this key; 0 = it
	// has not seen it yet, and the grace has not begun.
	SeenMS int64 `json:"seen_ms,omitempty"`
	// Purging: the topic is being permanently removed, and cannot be undeleted any more.
	Purging bool   `json:"purging,omitempty"`
	By      string `json:"by,omitempty"` // the client that deleted it; "": not known
	// DeletedAtMS is shown to operators. It is a time of day: nothing is decided by it.
	DeletedAtMS int64 `json:"deleted_at_ms"`
	Revision    int64 `json:"-"`
	// Created is the revision of the deletion: later deletions have larger ones.
	Created int64 `json:"-"`
}

// ClockState is the value of the key of the cluster's clock (version 1): the time in ms that
// controllers have counted, each by its process's monotonic clock. It stands still while there is
// no controller, so it is never ahead of the time that has passed.
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

// DecodeTrash reads the value of a Trash key.
func DecodeTrash(e Entry) (TrashState, error) {
	var s TrashState
	err := decode(e, &s, &s.V)
	s.Revision, s.Created = e.Mod, e.Create
	return s, err
}

// DecodeClock reads the value of the clock's key.
func DecodeClock(e Entry) (ClockState, error) {
	var s ClockState
	err := decode(e, &s, &s.V)
	s.Revision = e.Mod
	return s, err
}
