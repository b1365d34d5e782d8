package store

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/journal"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

func requireGoldenBytes(t *testing.T, name string, b []byte) {
	t.Helper()
	golden, err := os.ReadFile("testdata/" + name + ".hex")
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(golden)), hex.EncodeToString(b))
}

// goldenWrites has one write of every kind.
func goldenWrites() []queue.Write {
	marker := queue.Marker()
	m := marker.Seal(ident.Position{Offset: 100, Sequence: 7}, 3, 0x01020304, 5)
	put := queue.NewDraft(0)
	_ = put.AddMessage(queue.Message{Body: []byte("body")})
	draft := put.Draft(ident.RequestID{Producer: 8, N: 9})
	b := draft.Seal(m.End, 3, m.CRC, 6)
	at := ident.Position{Offset: 100, Sequence: 7}
	return []queue.Write{
		{Kind: queue.WriteAppend, Batches: []queue.Batch{b}},
		{Kind: queue.WriteEpoch, Epoch: 2},
		{Kind: queue.WriteReset, Epoch: 3, At: at, PrevCRC: 0x01020304, Batches: []queue.Batch{m}},
		{Kind: queue.WriteTruncate, At: at, PrevCRC: 0x01020304},
		{Kind: queue.WriteState, State: queue.StateVersion{Epoch: 3, N: 1, Full: true, Delta: []byte("full")}},
		{Kind: queue.WriteState, State: queue.StateVersion{Epoch: 3, N: 2, Delta: []byte("delta")}},
		{Kind: queue.WriteCommitted, At: at},
		{Kind: queue.WriteRestart, Epoch: 4, At: at, PrevCRC: 0x05060708},
		{Kind: queue.WriteIdentities, Identities: queue.IdentityMark{From: 1, End: 2, ClockMS: 3, Forgotten: 4}},
	}
}

// TestGoldenRecords pins the bytes of every kind of journal record.
func TestGoldenRecords(t *testing.T) {
	writes := goldenWrites()
	var b []byte
	for i := range writes {
		b = appendRecord(b, 0x1122334455667788, &writes[i])
	}
	requireGoldenBytes(t, "records", b)
	for i := range writes {
		r, n, err := DecodeRecord(b)
		require.NoError(t, err)
		require.Equal(t, writes[i].Kind, r.Kind)
		require.EqualValues(t, 0x1122334455667788, r.Slot)
		require.Equal(t, writes[i].State, r.State)
		require.Equal(t, writes[i].Identities, r.Identities)
		for at, wrong := range map[int]byte{4: byte(queue.WriteAppend - 1), 5: flagFull << 1} {
			damaged := bytes.Clone(b)
			damaged[at] = wrong
			_, _, err = DecodeRecord(damaged)
			require.ErrorIs(t, err, ErrCorrupt, "byte %d", at)
		}
		b = b[n:]
	}
	require.Empty(t, b)
}

// TestGoldenSnapshot pins the bytes of channels.snap.
func TestGoldenSnapshot(t *testing.T) {
	versions := []queue.StateVersion{
		{Epoch: 3, N: 1, Full: true, Delta: []byte("full")}, {Epoch: 3, N: 2, Delta: []byte("delta")},
	}
	b := encodeSnapshot(versions)
	requireGoldenBytes(t, "snapshot", b)
	got, err := decodeSnapshot(b)
	require.NoError(t, err)
	require.Equal(t, versions, got)
}

// TestGoldenIdentity pins the text of store.json.
func TestGoldenIdentity(t *testing.T) {
	fs := vfstest.NewMemory()
	require.NoError(t, fs.MkdirAll("/p"))
	s := &Store{o: Options{FS: fs}}
	require.NoError(t, s.writeIdentity(&Partition{dir: "/p", storeID: 0x0123456789abcdef, slot: 0xfedcba9876543210}))
	b, err := vfs.ReadFile(fs, "/p/"+identityName)
	require.NoError(t, err)
	require.Equal(t, `{"format":1,"store":"0123456789abcdef","slot":"fedcba9876543210","crc":3812223326}`+"\n", string(b))
	p := &Partition{dir: "/p"}
	require.NoError(t, s.readIdentity(p))
	require.EqualValues(t, 0x0123456789abcdef, p.storeID)
	require.EqualValues(t, uint64(0xfedcba9876543210), p.slot)
}

// TestGoldenCheckpoint: one without and one with the clean mark and the versions of the channels.
func TestGoldenCheckpoint(t *testing.T) {
	order := []uint64{1 << 40, 2 << 40, 3 << 40, 4 << 40}
	c := &checkpoint{
		mark: journal.Mark{Group: 3, Synced: 5, CRC: 0x01020304, Files: 2, FileBytes: 16 << 20}, bootID: "boot",
		entries: map[uint64]entry{
			order[0]: {epoch: 7, start: position(1, 2), end: position(3, 4), committed: position(5, 6), lastTimeNS: 8, lastCRC: 9, startCRC: 10},
			order[1]: {}, order[2]: {}, order[3]: {},
		},
		versions: map[uint64]version{},
	}
	requireGolden(t, "checkpoint-plain", c, order)
	c.clean = true
	e := c.entries[order[2]]
	e.identities = queue.IdentityMark{From: 1, End: 2, ClockMS: 3, Forgotten: 4}
	c.entries[order[2]] = e
	c.versions = map[uint64]version{order[0]: {7, 11}, order[1]: {1, 1}, order[2]: {1, 2}, order[3]: {2, 1}}
	requireGolden(t, "checkpoint", c, order)
	b := c.encode(order)
	for i := range b {
		b[i] ^= 1
		_, err := decodeCheckpoint(b)
		require.ErrorIs(t, err, ErrCorrupt, "byte %d", i)
		b[i] ^= 1
	}
}

func requireGolden(t *testing.T, name string, c *checkpoint, order []uint64) {
	t.Helper()
	golden, err := os.ReadFile("testdata/" + name + ".hex")
	require.NoError(t, err)
	b := c.encode(order)
	require.Equal(t, strings.TrimSpace(string(golden)), hex.EncodeToString(b))
	got, err := decodeCheckpoint(b)
	require.NoError(t, err)
	require.Equal(t, c, got)
}
