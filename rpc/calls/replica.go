package calls

import (
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc"
)

// The calls about replicas.
const (
	// Prepare creates the stores of a topic that is about to be created.
	Prepare Method[PrepareRequest, Prepared] = "replica.prepare"
	// Release removes prepared stores if the topic was not created.
	Release Method[PrepareRequest, None] = "replica.release"
	// Ends reports the ends of the partitions led by a broker, and the damaged ranges of its replicas.
	Ends Method[None, EndsReply] = "partition.ends"
	// Idle reports how long the partitions that a broker leads, and the channels in them, have been unused, if their
	// topic is deleted when unused, or deletes unused channels.
	Idle Method[IdleRequest, IdleReply] = "partition.idle"
	// Digest reads the checksums of a replica.
	Digest Method[JSON[api.DigestRequest], JSON[api.Digest]] = "partition.digest"
	// Peek reads messages of a replica.
	Peek Method[JSON[api.PeekRequest], JSON[api.Peeked]] = "partition.peek"
	// Discard makes a broker remove its replica of a partition and copy it again.
	Discard Method[DiscardRequest, None] = "replica.discard"
	// Batches reads committed batches of a replica.
	Batches Method[BatchesRequest, BatchesReply] = "partition.batches"
	// Transfer makes a leader transfer the leadership to another member.
	Transfer Method[TransferRequest, None] = "partition.handover"
)

// The requests and answers. On the wire, by position: append only.
type (
	// PrepareRequest names partitions of a topic.
	PrepareRequest struct {
		Name       string
		Topic      ident.TopicID
		Partitions []uint16
		Durability string // of the topic
	}
	// DiscardRequest names a replica by the id of its broker's store.
	DiscardRequest struct {
		ident.Partition
		Store ident.StoreID
	}
	// Prepared has one store id for each partition of the request.
	Prepared struct{ Stores []ident.StoreID }
	// EndsReply is the state of the partitions on one broker.
	EndsReply struct {
		Partitions []PartitionEnd
		Damaged    []DamagedPlace
		Starts     []PartitionStart // of the same partitions
	}
	// PartitionStart is where the log of a partition begins, at its leader.
	PartitionStart struct {
		ident.Partition
		StartOffset   ident.Offset
		StartSequence ident.Sequence
	}
	// PartitionEnd is the committed end and the end of a partition's log, at its leader.
	PartitionEnd struct {
		ident.Partition
		CommittedOffset   ident.Offset
		CommittedSequence ident.Sequence
		EndOffset         ident.Offset
	}
	// DamagedPlace is a range in quarantine.
	DamagedPlace struct {
		ident.Partition
		From, To                   ident.Offset
		FirstSequence, EndSequence ident.Sequence
	}
	// BatchesRequest requests committed batches, the first of which begins at From.
	BatchesRequest struct {
		ident.Partition
		From ident.Offset
	}
	// BatchesReply has the batches one after the other, as in the log.
	BatchesReply struct{ Batches rpc.Bytes }
	// TransferRequest names a partition and the member that should lead it.
	TransferRequest struct {
		ident.Partition
		To ident.Node
	}
	// IdleRequest names a topic; 0 = all.
	IdleRequest struct{ Topic ident.TopicID }
	// IdleReply has the partitions that are not in use.
	IdleReply struct {
		Partitions []IdlePartition
		Channels   []IdleChannel // unused for the time of their topic, or longer
	}
	// IdlePartition is a partition that has been unused for a time, as the leader of this epoch observed it.
	IdlePartition struct {
		ident.Partition
		Epoch  ident.Epoch
		IdleMS int64
	}
	// IdleChannel is a channel that has been unused for a time in a partition, as the leader of this epoch observed it.
	IdleChannel struct {
		ident.Partition
		Epoch   ident.Epoch
		Channel string
		ID      uint64 // in the channel's key
		IdleMS  int64
	}
)
