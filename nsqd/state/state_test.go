package state

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/cursor"
)

var rewrite = flag.Bool("rewrite", false, "rewrite testdata")

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

func sampleRecords() []Record {
	return []Record{
		{Kind: KindCreate, Channel: "a", ID: 0x1d, Flags: FlagOrdered, At: 7},
		{Kind: KindProgress, Channel: "b", Progress: cursor.Progress{
			Confirmed: 100,
			Settled:   []cursor.Span{{From: 102, To: 105}, {From: 110, To: 111}},
			Deferred:  []cursor.Entry{cursor.NewEntry(90, 1_700_000_000_000_000_000, 3), cursor.NewEntry(104, 0, 0)},
			Finished:  []ident.Sequence{50, 103},
		}},
		{Kind: KindSeek, Channel: "b", At: 12},
		{Kind: KindPause, Channel: "b", Flags: FlagPaused},
		{Kind: KindDelete, Channel: "a", At: 9},
		{Kind: KindBarrier, Flags: FlagPaused, At: 120},
		{Kind: KindKeep, At: 121},
	}
}

func sampleSnapshot() Snapshot {
	return Snapshot{Flags: FlagPaused, Barrier: 120, Keep: 3, Channels: []Channel{
		{Name: "a", ID: 0x1d, Flags: FlagOrdered | FlagPaused, Start: 7, Progress: cursor.Progress{Confirmed: 7}},
		{Name: "b", Start: 1, Progress: sampleRecords()[1].Progress},
	}}
}

// TestRelocationFormatsAreStable pins the bytes of the records that were added after the first
// version: relocations, the order of a channel, and a keep that moves back.
func TestRelocationFormatsAreStable(t *testing.T) {
	records := []Record{
		{Kind: KindKeep, Flags: FlagBack, At: 12},
		{Kind: KindRelocate, Offset: 4096, Seqs: []ident.Sequence{90, 95}},
		{Kind: KindRelocate, Flags: FlagSettled, Offset: 4096, Seqs: []ident.Sequence{95}},
		{Kind: KindRelocate, Flags: FlagBeyond, Offset: 4096, Seqs: []ident.Sequence{90}},
		{Kind: KindOrder, Channel: "b", Flags: FlagOrdered},
	}
	delta := EncodeDelta(records)
	golden(t, "delta-relocation.hex", delta)
	decoded, err := DecodeDelta(delta)
	require.NoError(t, err)
	require.Equal(t, records, decoded)

	s := sampleSnapshot()
	s.Relocated = []Relocated{{90, 0, 4096}, {95, 4096, 4096}, {97, 4096, 8192}}
	full := AppendSnapshot(nil, s)
	golden(t, "snapshot-relocation.hex", full)
	got, err := DecodeSnapshot(full)
	require.NoError(t, err)
	require.Equal(t, s.Relocated, got.Relocated)
}

func TestStateFormatsAreStable(t *testing.T) {
	delta, full := EncodeDelta(sampleRecords()), AppendSnapshot(nil, sampleSnapshot())
	golden(t, "delta.hex", delta)
	golden(t, "snapshot.hex", full)
	records, err := DecodeDelta(delta)
	require.NoError(t, err)
	require.Equal(t, sampleRecords(), records)
	s, err := DecodeSnapshot(full)
	require.NoError(t, err)
	require.Equal(t, sampleSnapshot(), s)
}

func TestMalformedStateIsRefusedWhole(t *testing.T) {
	delta, full := EncodeDelta(sampleRecords()), AppendSnapshot(nil, sampleSnapshot())
	ends := map[int]bool{} // a delta may end after each record
	for i := range sampleRecords() {
		ends[len(EncodeDelta(sampleRecords()[:i]))] = true
	}
	for n := range delta {
		_, err := DecodeDelta(delta[:n])
		require.Equal(t, ends[n], err == nil, "delta cut at %d", n)
	}
	for n := range full {
		_, err := DecodeSnapshot(full[:n])
		require.ErrorIs(t, err, errMalformed, "snapshot cut at %d", n)
	}
	_, err := DecodeSnapshot(append(bytes.Clone(full), 0))
	require.ErrorIs(t, err, errMalformed)
}

// TestACountAllocatesNoMoreThanItsBytes: a damaged count, which promises a million deferred messages,
// does not cost the memory of a million.
func TestACountAllocatesNoMoreThanItsBytes(t *testing.T) {
	delta := EncodeDelta([]Record{{Kind: KindProgress, Channel: "c"}})
	deferred := len(delta) - 8 // the counts of deferred and of finished messages end the delta
	binary.LittleEndian.PutUint32(delta[deferred:], 1<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := DecodeDelta(delta)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, errMalformed)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

func FuzzState(f *testing.F) {
	f.Add(EncodeDelta(sampleRecords()))
	f.Add(AppendSnapshot(nil, sampleSnapshot()))
	f.Add([]byte{stateVersion})
	f.Add(EncodeDelta([]Record{{Kind: KindRelocate, Offset: 77, Seqs: []ident.Sequence{1, 5}}}))
	f.Add(AppendSnapshot(nil, Snapshot{Relocated: []Relocated{{1, 0, 77}, {5, 77, 90}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		// Canonical: one state has one encoding.
		if records, err := DecodeDelta(b); err == nil {
			require.Equal(t, b, EncodeDelta(records))
		}
		if s, err := DecodeSnapshot(b); err == nil {
			require.Equal(t, b, AppendSnapshot(nil, s))
		}
	})
}
