package calls

import (
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// DigestRequest is an api.DigestRequest.
// On the wire, by place: append only.
type DigestRequest struct {
	Topic     string
	Partition uint16
	From      int64
}

// DigestReply is an api.Digest.
// On the wire, by place: append only.
type DigestReply struct {
	Node                  ident.Node
	Store                 ident.StoreID
	Role                  string
	Epoch                 ident.Epoch
	Start, Committed, End int64
	Next                  int64
	Batches               []BatchDigest
	CommittedSequence     ident.Sequence
	EndSequence           ident.Sequence
}

// BatchDigest is an api.BatchDigest.
// On the wire, by place: append only.
type BatchDigest struct {
	Offset, Bytes int64
	Epoch         uint64
	CRC           uint32
}

// DigestReplyOf is the answer that carries a digest.
func DigestReplyOf(d api.Digest) DigestReply {
	r := DigestReply{
		Node: d.Node, Store: d.Store, Role: d.Role, Epoch: d.Epoch,
		Start: d.Start, Committed: d.Committed, End: d.End, Next: d.Next,
		Batches:           make([]BatchDigest, len(d.Batches)),
		CommittedSequence: d.CommittedSequence, EndSequence: d.EndSequence,
	}
	for i, b := range d.Batches {
		r.Batches[i] = BatchDigest(b)
	}
	return r
}
