package calls

import "github.com/lockstepmq/lockstep/internal/ident"

// Idle reports for how long the partitions that a broker leads, and the channels in them, have not been used,
// if the topic is deleted for that, or its channels are.
const Idle Method[IdleRequest, IdleReply] = "partition.idle"

// IdleRequest names a topic; 0 = all.
// On the wire, by place: append only.
type IdleRequest struct{ Topic uint64 }

// IdleReply has the partitions that are not in use.
// On the wire, by place: append only.
type IdleReply struct {
	Partitions []IdlePartition
	Channels   []IdleChannel // for the time of their topic, or longer
}

// IdlePartition is a partition that has not been used for a time, as its leader of this epoch has
// seen.
// On the wire, by place: append only.
type IdlePartition struct {
	Topic  uint64
	Number uint16
	Epoch  uint64
	IdleMS int64
}

// Partition names the partition.
func (p IdlePartition) Partition() ident.Partition { return partition(p.Topic, p.Number) }

// IdleChannel is a channel that has not been used for a time in a partition, as the partition's leader of
// this epoch has seen.
// On the wire, by place: append only.
type IdleChannel struct {
	Topic   uint64
	Number  uint16
	Epoch   uint64
	Channel string
	ID      uint64 // in the channel's key
	IdleMS  int64
}

// Partition names the partition.
func (c IdleChannel) Partition() ident.Partition { return partition(c.Topic, c.Number) }
