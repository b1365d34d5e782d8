package queue

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

func TestRelocationBatchKeepsMessages(t *testing.T) {
	want := []Message{
		{Seq: 3, Time: 7, Body: []byte("a")},
		{Seq: 900, Time: 8, DeliverAt: 99, Trace: 5, Header: []byte(`{"k":1}`), Body: []byte("b")},
	}
	c := NewRelocation()
	for _, m := range want {
		require.NoError(t, c.Add(m))
	}
	require.Error(t, c.Add(Message{Header: make([]byte, MaxMessageHeader+1)}))
	require.Equal(t, 2, c.Count())
	d := c.Draft()
	at := ident.Position{Offset: 100, Sequence: 1000}
	sealed := d.Seal(at, 4, 1, 5)
	b, n, err := Decode(sealed.Bytes)
	require.NoError(t, err)
	require.Len(t, sealed.Bytes, n)
	require.Equal(t, at.Sequence, b.End.Sequence, "it takes no sequence")
	require.Empty(t, b.Messages(0, 10, nil))
	require.Equal(t, want, b.Relocated(nil))
	golden, err := os.ReadFile("testdata/relocation.hex")
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(golden)), hex.EncodeToString(sealed.Bytes), "the bytes on disk")
	data := NewDraft(1)
	data.Add([]byte("x"))
	plain := data.Draft(ident.RequestID{})
	other := plain.Seal(at, 4, 1, 5)
	require.Empty(t, other.Relocated(nil))
}

func TestMalformedRelocationBatchIsRefused(t *testing.T) {
	c := NewRelocation()
	require.NoError(t, c.Add(Message{Seq: 3, Body: []byte("body")}))
	draft := c.Draft()
	good := draft.Bytes[HeaderSize:]
	for cut := 1; cut < len(good); cut++ {
		d := Draft{Bytes: append(make([]byte, HeaderSize), good[:cut]...), Control: ControlRelocation}
		d.PayloadCRC = Checksum(d.Bytes[HeaderSize:])
		b := d.Seal(ident.Position{}, 1, 0, 0)
		_, _, err := Decode(b.Bytes)
		require.ErrorIs(t, err, ErrCorrupt, "cut at %d", cut)
	}
}
