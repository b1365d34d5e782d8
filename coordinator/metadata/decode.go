package metadata

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Version is the version that this binary writes into values, and the highest
// that it reads.
const Version = 1

// ErrValue means that the value of a key cannot be read: it is not JSON, or
// written by a newer version. It must never be taken for "the key is gone".
var ErrValue = errors.New("meta: value cannot be read")

// DecodePartition reads the value of a partition's key.
func DecodePartition(e Entry) (PartitionState, error) {
	var s PartitionState
	err := decode(e, &s, &s.V)
	s.Revision = e.Mod
	return s, err
}

// DecodeTopic reads the value of a topic's key.
func DecodeTopic(e Entry) (TopicState, error) {
	var s TopicState
	err := decode(e, &s, &s.V)
	s.Revision = e.Mod
	return s, err
}

// DecodeChannel reads the value of a channel's key.
func DecodeChannel(e Entry) (ChannelState, error) {
	var s ChannelState
	err := decode(e, &s, &s.V)
	s.Revision = e.Mod
	return s, err
}

// DecodeNode reads the value of nodes/<n> or live/<n>.
func DecodeNode(e Entry) (NodeState, error) {
	var s NodeState
	err := decode(e, &s, &s.V)
	return s, err
}

// DecodeCluster reads the value of the config key.
func DecodeCluster(e Entry) (ClusterState, error) {
	var s ClusterState
	err := decode(e, &s, &s.V)
	s.Revision = e.Mod
	return s, err
}

// IncarnationOf gives the incarnation that a registration (live/<n>) stands for.
func IncarnationOf(e Entry) ident.Incarnation { return ident.Incarnation(e.Create) }

func decode(e Entry, to any, version *int) error {
	if err := json.Unmarshal(e.Value, to); err != nil {
		return fmt.Errorf("%w: %s: %v", ErrValue, e.Key, err)
	}
	if *version < 1 || *version > Version {
		return fmt.Errorf("%w: %s: version %d, this binary reads up to %d", ErrValue, e.Key, *version, Version)
	}
	return nil
}

// Tombstoned reports whether a linearizable read of a topic's tombstone proves that the
// topic is permanently deleted: only a tombstone that was found does. A key that is not there
// proves nothing, and a failed read proves nothing.
func Tombstoned(read error) bool { return read == nil }
