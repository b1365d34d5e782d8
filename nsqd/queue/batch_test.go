package queue

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// golden returns a sealed batch with every field set.
func golden(t *testing.T) Batch {
	t.Helper()
	d := NewDraft(0)
	d.Add([]byte("one"))
	require.NoError(t, d.AddMessage(Message{Trace: 1, DeliverAt: 2, Header: []byte("{}"), Body: []byte("two")}))
	draft := d.Draft(ident.RequestID{Producer: 5, N: 6})
	return draft.Seal(ident.Position{Offset: 4096, Sequence: 7}, 3, 0x01020304, 1700000000123456789)
}

func TestGoldenBatch(t *testing.T) {
	b := golden(t)
	want, err := os.ReadFile("testdata/batch.hex")
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(want)), hex.EncodeToString(b.Bytes))
	got, n, err := Decode(b.Bytes)
	require.NoError(t, err)
	require.Equal(t, len(b.Bytes), n)
	require.Equal(t, b, got)
	messages := got.Messages(0, 10, nil)
	require.Len(t, messages, 2)
	require.Equal(t, Message{Time: b.Time, DeliverAt: 2, Trace: 1, Header: []byte("{}"), Body: []byte("two"), Seq: 8}, messages[1])
}

func TestBodyBytesExcludeEncoding(t *testing.T) {
	b := NewDraft(0)
	b.Add([]byte("12345"))
	require.NoError(t, b.AddMessage(Message{Trace: 1, DeliverAt: 2, Header: []byte("header"), Body: []byte("678")}))
	d := b.Draft(ident.RequestID{})
	require.Equal(t, 8, d.BodyBytes())
	marker := Marker()
	require.Zero(t, marker.BodyBytes())
	d.Bytes = d.Bytes[:len(d.Bytes)-1]
	require.Equal(t, 5, d.BodyBytes(), "a message that is cut short does not count")
}

// TestEveryFlippedBitIsFound: no change of a single bit of a batch goes undetected.
func TestEveryFlippedBitIsFound(t *testing.T) {
	b := golden(t).Bytes
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			_, _, err := Decode(b)
			require.Error(t, err, "byte %d bit %d", i, bit)
			b[i] ^= 1 << bit
		}
	}
	for n := range b {
		_, _, err := Decode(b[:n])
		require.ErrorIs(t, err, ErrTorn)
	}
}

func FuzzDecode(f *testing.F) {
	d := NewDraft(0)
	d.Add([]byte("one"))
	draft := d.Draft(ident.RequestID{Producer: 1, N: 1})
	b := draft.Seal(ident.Position{}, 1, 0, 1)
	marker := Marker()
	f.Add(b.Bytes)
	f.Add(marker.Seal(ident.Position{}, 1, 0, 1).Bytes)
	f.Add(b.Bytes[:50])
	f.Fuzz(func(t *testing.T, b []byte) {
		batch, n, err := Decode(b)
		if err != nil {
			return
		}
		require.LessOrEqual(t, n, len(b))
		require.Len(t, batch.Messages(0, int(batch.Count)+1, nil), int(batch.Count))
		again, _, err := Decode(batch.Bytes)
		require.NoError(t, err)
		require.Equal(t, batch, again)
	})
}

// Add appends a message with a body only.
func (b *DraftBuilder) Add(body []byte) { copy(b.Grow(len(body)), body) }
