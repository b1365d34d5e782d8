package metadata

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Version is the version that this binary writes into values, and the highest that it reads.
const Version = 1

// ErrValue means that a value is not JSON, or was written by a newer version. It must never be treated as an absent key.
var ErrValue = errors.New("meta: value cannot be read")

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

// decode reads a value. fields returns where its version is, and where its revision is noted.
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

// Tombstoned reports whether a linearizable read of a topic's tombstone proves that the topic is permanently deleted: only a
// tombstone that was found does. A key that is not there proves nothing, and a failed read proves nothing.
func Tombstoned(read error) bool { return read == nil }
