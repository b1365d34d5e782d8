package calls

import (
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc"
)

// The calls about replicas.
const (
	// Prepare makes the stores of a topic that is about to be created.
	Prepare Method[PrepareRequest, Prepared] = "replica.prepare"
	// Release removes them if the topic was not created.
	Release Method[PrepareRequest, None] = "replica.release"
	// Ends reports how far the partitions led by a broker have come, and which places of its
	// replicas are damaged.
	Ends Method[None, EndsReply] = "partition.ends"
	// Digest reads the checksums of a replica.
	Digest Method[DigestRequest, DigestReply] = "partition.digest"
	// Peek reads messages of a replica.
	Peek Method[PeekRequest, PeekReply] = "partition.peek"
	// Discard has a broker remove its replica of a partition, and copy it again.
	Discard Method[DiscardRequest, None] = "replica.discard"
	// Batches reads committed batches of a replica.
	Batches Method[BatchesRequest, BatchesReply] = "partition.batches"
	// Transfer has a leader transfer the leadership to another member.
	Transfer Method[TransferRequest, None] = "partition.handover"
)

// PrepareRequest names partitions of a topic.
// On the wire, by place: append only.
type PrepareRequest struct {
	Name       string
	Topic      uint64
	Partitions []uint16
	Durability string // of the topic; "" from older brokers
}

// DiscardRequest names a replica by its broker's store of it.
// On the wire, by place: append only.
type DiscardRequest struct {
	Topic  uint64
	Number uint16
	Store  uint64
}

// Partition names the partition.
func (r DiscardRequest) Partition() ident.Partition {
	return partition(r.Topic, r.Number)
}

// Prepared has one store id for each partition of the request.
// On the wire, by place: append only.
type Prepared struct{ Stores []uint64 }

// EndsReply is the state of the partitions on one broker.
// On the wire, by place: append only.
type EndsReply struct {
	Partitions []PartitionEnd
	Damaged    []DamagedPlace
	Starts     []PartitionStart // of the same partitions; older builds leave it out
}

// PartitionStart is where the log of a partition begins, at its leader.
// On the wire, by place: append only.
type PartitionStart struct {
	Topic         uint64
	Number        uint16
	StartOffset   int64
	StartSequence uint64
}

// PartitionEnd is how far a partition has come at its leader.
// On the wire, by place: append only.
type PartitionEnd struct {
	Topic             uint64
	Number            uint16
	CommittedOffset   int64
	CommittedSequence uint64
	EndOffset         int64
}

// Partition names the partition.
func (s PartitionStart) Partition() ident.Partition { return partition(s.Topic, s.Number) }

// Partition names the partition.
func (e PartitionEnd) Partition() ident.Partition {
	return partition(e.Topic, e.Number)
}

// DamagedPlace is a place in quarantine.
// On the wire, by place: append only.
type DamagedPlace struct {
	Topic                      uint64
	Number                     uint16
	From, To                   int64
	FirstSequence, EndSequence uint64
}

// Partition names the partition.
func (d DamagedPlace) Partition() ident.Partition {
	return partition(d.Topic, d.Number)
}

// BatchesRequest asks for committed batches, the first of which begins at From.
// On the wire, by place: append only.
type BatchesRequest struct {
	Topic  uint64
	Number uint16
	From   int64
}

// Partition names the partition.
func (r BatchesRequest) Partition() ident.Partition {
	return partition(r.Topic, r.Number)
}

// BatchesReply has the batches one after the other, as they lie in the log.
// On the wire, by place: append only.
type BatchesReply struct{ Batches rpc.Bytes }

// TransferRequest names a partition and the member that is to lead it.
// On the wire, by place: append only.
type TransferRequest struct {
	Topic  uint64
	Number uint16
	To     string
}

// Partition names the partition.
func (r TransferRequest) Partition() ident.Partition {
	return partition(r.Topic, r.Number)
}
