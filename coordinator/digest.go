package coordinator

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/store"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	// digestBatches bounds one answer; the next begins at its Next.
	digestBatches = 10_000
	digestBytes   = 4 << 20 // of the log, read at once
)

// DigestRequest asks for the checksums of a replica from an offset on.
type DigestRequest struct {
	Topic     string
	Partition uint16
	From      int64
}

// Digest is what a replica holds, batch by batch, up to its committed end: equal
// digests mean equal bytes, because each batch's checksum covers its
// predecessor's. Next is where the following one begins; at Committed all is told.
type Digest struct {
	Node      ident.Node    `json:"node"`
	Store     ident.StoreID `json:"store"`
	Role      string        `json:"role"`
	Epoch     ident.Epoch   `json:"epoch"`
	Start     int64         `json:"start"`
	Committed int64         `json:"committed"`
	End       int64         `json:"end"`
	Next      int64         `json:"next"`
	Batches   []BatchDigest `json:"batches"`

	CommittedSequence ident.Sequence `json:"committed_sequence"`
	EndSequence       ident.Sequence `json:"end_sequence"`
}

// BatchDigest is one batch: [offset, bytes, epoch, crc].
type BatchDigest struct {
	Offset int64  `json:"offset"`
	Bytes  int64  `json:"bytes"`
	Epoch  uint64 `json:"epoch"`
	CRC    uint32 `json:"crc"`
}

// Digest reads the replica of a partition on this broker. Errors wrap
// edge.ErrTopicNotFound.
func (b *Broker) Digest(req DigestRequest) (Digest, error) {
	t, ok := b.catalog.topic(req.Topic)
	if !ok {
		return Digest{}, edge.ErrTopicNotFound
	}
	h, ok := b.host(ident.Partition{Topic: t.ID, Number: req.Partition})
	if !ok {
		return Digest{}, edge.ErrTopicNotFound
	}
	v := h.View()
	d := Digest{
		Node: b.self, Store: h.store.StoreID(), Role: v.Role.String(), Epoch: v.Epoch,
		Start: int64(h.Start().Offset), Committed: int64(v.Committed.Offset), End: int64(v.End.Offset),
		CommittedSequence: v.Committed.Sequence, EndSequence: v.End.Sequence,
		Batches: []BatchDigest{},
	}
	d.Next = max(req.From, d.Start)
	for d.Next < d.Committed && len(d.Batches) < digestBatches {
		batches, err := h.store.ReadAt(ident.Offset(d.Next), digestBytes)
		if start := int64(h.Start().Offset); errors.Is(err, store.ErrTrimmed) && start > d.Next { // meanwhile
			d.Start, d.Next, d.Batches = start, start, d.Batches[:0]
			continue
		}
		if err != nil || !d.add(batches) {
			return d, err
		}
	}
	return d, nil
}

// add takes batches up to the committed end; false if there was none.
func (d *Digest) add(batches []queue.Batch) (some bool) {
	for _, x := range batches {
		if int64(x.End.Offset) > d.Committed || len(d.Batches) >= digestBatches {
			return some
		}
		some = true
		d.Batches = append(d.Batches, BatchDigest{
			Offset: int64(x.At.Offset), Bytes: int64(len(x.Bytes)), Epoch: uint64(x.Epoch), CRC: x.CRC,
		})
		d.Next = int64(x.End.Offset)
	}
	return some
}

// ServeDigest is GET /v1/partition/digest?topic=&partition=&from=.
func (b *Broker) ServeDigest(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	partition, err := strconv.ParseUint(q.Get("partition"), 10, 16)
	from, err2 := strconv.ParseInt(orZero(q.Get("from")), 10, 64)
	if err = errors.Join(err, err2); err != nil {
		answer(w, http.StatusBadRequest, map[string]string{"message": "INVALID_REQUEST"})
		return
	}
	d, err := b.Digest(DigestRequest{Topic: q.Get("topic"), Partition: uint16(partition), From: from})
	switch {
	case errors.Is(err, edge.ErrTopicNotFound):
		answer(w, http.StatusNotFound, map[string]string{"message": "TOPIC_NOT_FOUND"})
	case err != nil:
		answer(w, http.StatusInternalServerError, map[string]string{"message": err.Error()})
	default:
		answer(w, http.StatusOK, d)
	}
}

func orZero(s string) string {
	if s == "" {
		return "0"
	}
	return s
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client has gone; nobody to tell
}
