package nsqd

import (
	"bytes"
	"encoding/json"
	"runtime"
	"testing"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/state"
)

// The backlog of docs/adr/0013: one message in ten has a high priority, at no regular places.
const (
	priorityBacklog = 1_000_000
	priorityOneIn   = 10
	priorityDelta   = 1000 // finishes of one delta: 10 ms at 100,000 a second
)

// isHigh scatters the messages of high priority, without a table (splitmix64).
func isHigh(seq ident.Sequence) bool {
	x := uint64(seq) * 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return (x^x>>31)%priorityOneIn == 0
}

// priorityRun is what a channel and its follower did.
type priorityRun struct {
	leader, follower cursor.Cursor
	finishes         int
	deltaBytes       int
	snapshotBytes    int // the largest
	spans            int // the most
}

func (r *priorityRun) finish(seq ident.Sequence) {
	r.leader.Finish(seq)
	if r.finishes++; r.finishes%priorityDelta == 0 {
		r.send()
	}
}

// send replicates the finishes since the last delta, as nsqd does.
func (r *priorityRun) send() {
	p, ok := r.leader.TakeDelta()
	if !ok {
		return
	}
	delta := state.EncodeDelta([]state.Record{{Kind: state.KindProgress, Channel: "ch", Progress: p}})
	r.deltaBytes += len(delta)
	records, err := state.DecodeDelta(delta)
	if err != nil {
		panic(err)
	}
	r.follower.Apply(records[0].Progress)
	r.follower.ClearDelta()
}

// measure notes the size of the whole state: a follower that joins takes it as one snapshot, and so does
// the journal from time to time.
func (r *priorityRun) measure() {
	full := r.leader.Full()
	s := state.AppendSnapshot(nil, state.Snapshot{Channels: []state.Channel{{Name: "ch", Progress: full}}})
	r.snapshotBytes, r.spans = max(r.snapshotBytes, len(s)), max(r.spans, len(full.Settled))
}

func (r *priorityRun) report(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(r.finishes), "ns/finish")
	b.ReportMetric(float64(r.deltaBytes)/float64(r.finishes), "delta-B/finish")
	b.ReportMetric(float64(r.snapshotBytes), "snapshot-B")
	b.ReportMetric(float64(r.spans), "ranges")
}

// BenchmarkPriorities measures what a channel costs that delivers high priorities first: its replicated
// state, and the search for such messages in a backlog (docs/adr/0013). "topics" is one topic for each
// priority.
func BenchmarkPriorities(b *testing.B) {
	b.Run("state/in-order", func(b *testing.B) {
		var r priorityRun
		for range b.N {
			r = priorityRun{}
			for seq := range ident.Sequence(priorityBacklog) {
				r.finish(seq)
			}
			r.measure()
		}
		r.report(b)
	})
	b.Run("state/high-first", func(b *testing.B) {
		var r priorityRun
		for range b.N {
			r = priorityRun{}
			for _, high := range []bool{true, false} {
				for seq := range ident.Sequence(priorityBacklog) {
					if isHigh(seq) == high {
						r.finish(seq)
					}
				}
				r.send()
				r.measure()
			}
			if r.leader.Confirmed() != priorityBacklog || r.follower.Confirmed() != priorityBacklog {
				b.Fatal("the backlog is not finished")
			}
		}
		r.report(b)
	})
	b.Run("state/topics", func(b *testing.B) {
		var low, high priorityRun
		for range b.N {
			low, high = priorityRun{}, priorityRun{}
			for seq := range ident.Sequence(priorityBacklog) {
				if isHigh(seq) {
					high.finish(ident.Sequence(high.finishes))
				} else {
					low.finish(ident.Sequence(low.finishes))
				}
			}
			low.measure()
			high.measure()
		}
		sum := priorityRun{
			finishes: low.finishes + high.finishes, deltaBytes: low.deltaBytes + high.deltaBytes,
			snapshotBytes: low.snapshotBytes + high.snapshotBytes, spans: low.spans + high.spans,
		}
		sum.report(b)
	})
	b.Run("search", benchmarkPrioritySearch)
}

// benchmarkPrioritySearch reads a backlog once, decodes the headers, and keeps the places of what is not
// delivered yet, by priority: as a leader must, before it can deliver the first message of high priority,
// and again after each change of the leader.
func benchmarkPrioritySearch(b *testing.B) {
	const inBatch, body = 100, 200
	draft := queue.NewDraft(0)
	for seq := range ident.Sequence(inBatch) {
		m := queue.Message{Header: []byte(`{"##priority":0,"kind":"order"}`), Body: bytes.Repeat([]byte{'x'}, body)}
		if isHigh(seq) {
			m.Header[len(`{"##priority":`)] = '9'
		}
		if err := draft.AddMessage(m); err != nil {
			b.Fatal(err)
		}
	}
	d := draft.Draft(ident.RequestID{})
	sealed := d.Seal(ident.Position{}, 1, 0, 1)
	index := [10][]ident.Sequence{}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	for range b.N {
		index = [10][]ident.Sequence{}
		var messages []queue.Message
		for seq := ident.Sequence(0); seq < priorityBacklog; seq += inBatch {
			batch, _, err := queue.Decode(sealed.Bytes)
			if err != nil {
				b.Fatal(err)
			}
			messages = batch.Messages(0, inBatch, messages[:0])
			for i := range messages {
				var fields struct {
					Priority int `json:"##priority"`
				}
				if err := json.Unmarshal(messages[i].Header, &fields); err != nil {
					b.Fatal(err)
				}
				index[fields.Priority] = append(index[fields.Priority], seq+messages[i].Seq)
			}
		}
	}
	b.StopTimer()
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc)-float64(before.HeapAlloc), "index-B")
	b.ReportMetric(float64(len(sealed.Bytes)*priorityBacklog/inBatch), "read-B")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/priorityBacklog, "ns/message")
	if len(index[9])+len(index[0]) != priorityBacklog {
		b.Fatal("a message is missing")
	}
}
