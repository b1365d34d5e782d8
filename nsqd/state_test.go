package nsqd

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew")

func golden(t *testing.T, name string, b []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(hex.Dump(b)), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), hex.Dump(b))
}

func sampleRecords() []record {
	return []record{
		{kind: kindCreate, channel: "a", flags: flagOrdered, at: 7},
		{kind: kindProgress, channel: "b", progress: progress{
			confirmed: 100,
			settled:   []span{{102, 105}, {110, 111}},
			aside:     []entry{newEntry(90, 1_700_000_000_000_000_000, 3), newEntry(104, 0, 0)},
			finished:  []ident.Sequence{50, 103},
		}},
		{kind: kindSeek, channel: "b", at: 12},
		{kind: kindPause, channel: "b", flags: flagPaused},
		{kind: kindDelete, channel: "a", at: 9},
		{kind: kindBarrier, flags: flagPaused, at: 120},
		{kind: kindKeep, at: 121},
	}
}

func sampleSnapshot() snapshot {
	return snapshot{flags: flagPaused, barrier: 120, keep: 3, channels: []saved{
		{name: "a", flags: flagOrdered | flagPaused, start: 7, progress: progress{confirmed: 7}},
		{name: "b", start: 1, progress: sampleRecords()[1].progress},
	}}
}

func TestStateFormatsAreStable(t *testing.T) {
	delta, full := encodeDelta(sampleRecords()), appendSnapshot(nil, sampleSnapshot())
	golden(t, "delta.hex", delta)
	golden(t, "snapshot.hex", full)
	records, err := decodeDelta(delta)
	require.NoError(t, err)
	require.Equal(t, sampleRecords(), records)
	s, err := decodeSnapshot(full)
	require.NoError(t, err)
	require.Equal(t, sampleSnapshot(), s)
}

func TestMalformedStateIsRefusedWhole(t *testing.T) {
	delta, full := encodeDelta(sampleRecords()), appendSnapshot(nil, sampleSnapshot())
	ends := map[int]bool{} // a delta may end after each record
	for i := range sampleRecords() {
		ends[len(encodeDelta(sampleRecords()[:i]))] = true
	}
	for n := range delta {
		_, err := decodeDelta(delta[:n])
		require.Equal(t, ends[n], err == nil, "delta cut at %d", n)
	}
	for n := range full {
		_, err := decodeSnapshot(full[:n])
		require.ErrorIs(t, err, errState, "snapshot cut at %d", n)
	}
	_, err := decodeSnapshot(append(bytes.Clone(full), 0))
	require.ErrorIs(t, err, errState)

	var out strings.Builder
	log := logrus.New()
	log.SetOutput(&out)
	p := NewPartition("orders", testID, &memoryLog{}, &replicas{}, Options{Log: log})
	p.Replace(full)
	before := p.Snapshot()
	p.Apply(delta[:len(delta)-1])
	p.Apply([]byte{9})
	p.Replace(full[:40])
	require.Equal(t, before, p.Snapshot())
	require.Equal(t, 3, strings.Count(out.String(), "refused"))

	q := NewPartition("orders", testID, &memoryLog{}, &replicas{}, Options{})
	q.Replace(before)
	require.Equal(t, before, q.Snapshot())
}

func applyTo(p *Partition, r ...record) { p.Apply(encodeDelta(r)) }

func TestAFollowerOnlyMovesForward(t *testing.T) {
	p := NewPartition("orders", testID, &memoryLog{}, &replicas{}, Options{})
	told := func(at ident.Sequence) record {
		return record{kind: kindProgress, channel: "c", progress: progress{confirmed: at}}
	}
	applyTo(p, told(500)) // unknown, and far beyond the end of the log
	c, ok := p.Channel("c")
	require.True(t, ok)
	require.EqualValues(t, 500, c.cursor.start)
	applyTo(p, told(300))
	require.EqualValues(t, 500, c.cursor.confirmed)
	applyTo(p, record{kind: kindCreate, channel: "c", at: 3})
	require.EqualValues(t, 500, c.cursor.confirmed)
	applyTo(p, told(700))
	require.EqualValues(t, 700, c.cursor.confirmed)
	applyTo(p, record{kind: kindSeek, channel: "c", at: 20})
	require.EqualValues(t, 20, c.cursor.confirmed)
	require.EqualValues(t, 20, p.LowWater())
	require.False(t, p.Dirty())
	require.False(t, c.cursor.dirty)
}

// TestALeaderWhoseChannelIsAheadOfTheLogMovesItBack: an operator made it the leader
// after the disks with the messages were lost; others are put in their places.
func TestALeaderWhoseChannelIsAheadOfTheLogMovesItBack(t *testing.T) {
	r := newRig(Options{})
	r.Unlead()
	ahead := []record{
		{kind: kindCreate, channel: "c", at: 1},
		{kind: kindProgress, channel: "c", progress: progress{settled: []span{{2, 5}}, aside: []entry{newEntry(2, 0, 0), newEntry(6, 0, 0)}}},
		{kind: kindCreate, channel: "passed", at: 5},
	}
	follower := NewPartition("orders", testID, r.log, &replicas{}, Options{})
	for _, x := range ahead {
		applyTo(r.Partition, x)
		applyTo(follower, x)
	}
	r.publishN(3)
	r.Lead(2)
	c, _ := r.Channel("c")
	s := subscribe(t, c)
	require.Len(t, c.Pull(s, 9, nil), 2)
	r.publishN(4)
	require.Len(t, c.Pull(s, 9, nil), 4)
	requireExact(t, r.Partition, c)
	passed, _ := r.Channel("passed")
	require.Len(t, passed.Pull(subscribe(t, passed), 9, nil), 4)
	for _, d := range r.rep.deltas {
		follower.Apply(d)
	}
	require.Equal(t, r.LowWater(), follower.LowWater())
	followed, _ := follower.Channel("passed")
	require.EqualValues(t, 3, followed.cursor.confirmed)
}

// TestALeaderWhoseTopicIsAheadOfTheLogMovesItBack: neither a pause nor what the topic
// is done with reaches over what is put next.
func TestALeaderWhoseTopicIsAheadOfTheLogMovesItBack(t *testing.T) {
	for name, ahead := range map[string]record{
		"paused": {kind: kindBarrier, flags: flagPaused, at: 5}, "emptied": {kind: kindKeep, at: 5},
	} {
		r := newRig(Options{})
		r.Unlead()
		follower := NewPartition("orders", testID, r.log, &replicas{}, Options{})
		applyTo(r.Partition, ahead)
		applyTo(follower, ahead)
		r.publishN(3)
		r.Lead(2)
		r.publishN(4)
		c := r.channel(t, "c", ChannelOptions{Origin: FromBacklog})
		s := subscribe(t, c)
		if ahead.kind == kindBarrier {
			require.Len(t, c.Pull(s, 9, nil), 3, name)
			for _, d := range r.rep.deltas {
				follower.Apply(d)
			}
			require.EqualValues(t, 3, follower.barrier)
			require.NoError(t, r.UnpauseTopic(t.Context()))
		}
		require.Len(t, c.Pull(s, 9, nil), 4, name)
		requireExact(t, r.Partition, c)
	}
}

// TestWhatATopicKeepsIsMovedBackOnAllReplicas: whoever leads next, or starts again from the
// state that was kept, gives the first channel what was put since.
func TestWhatATopicKeepsIsMovedBackOnAllReplicas(t *testing.T) {
	r := newRig(Options{})
	r.Unlead()
	next := NewPartition("orders", testID, r.log, &replicas{}, Options{})
	applyTo(r.Partition, record{kind: kindKeep, at: 5})
	next.Replace(r.Snapshot())
	r.publishN(3)
	r.Lead(2)
	r.publishN(4)
	for _, d := range r.rep.deltas {
		next.Apply(d)
	}
	require.EqualValues(t, 3, next.LowWater())
	next.Lead(3)
	c, err := next.CreateChannel(t.Context(), "c", ChannelOptions{Origin: FromBacklog})
	require.NoError(t, err)
	require.EqualValues(t, 3, c.confirmed())
}

func FuzzState(f *testing.F) {
	f.Add(encodeDelta(sampleRecords()))
	f.Add(appendSnapshot(nil, sampleSnapshot()))
	f.Add([]byte{stateVersion})
	f.Add(encodeDelta([]record{{kind: kindCarry, offset: 77, seqs: []ident.Sequence{1, 5}}}))
	f.Add(appendSnapshot(nil, snapshot{carried: []placed{{1, 77}, {5, 90}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if records, err := decodeDelta(b); err == nil {
			// Canonical: one state has one encoding.
			require.Equal(t, b, encodeDelta(records))
		}
		if s, err := decodeSnapshot(b); err == nil {
			require.Equal(t, b, appendSnapshot(nil, s))
		}
		p := NewPartition("orders", testID, &memoryLog{}, &replicas{}, Options{})
		p.Apply(b)
		p.Replace(b)
		p.Apply(b)
		p.Lead(1)
		p.Expire(1)
		q := NewPartition("orders", testID, &memoryLog{}, &replicas{}, Options{})
		q.Replace(p.Snapshot())
		require.Equal(t, p.LowWater(), q.LowWater())
		p.Unlead()
	})
}
