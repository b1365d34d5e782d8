package queue

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

func TestCarryBatchKeepsMessagesAsTheyWere(t *testing.T) {
	want := []Message{
		{Seq: 3, Time: 7, Body: []byte("a")},
		{Seq: 900, Time: 8, DeliverAt: 99, Trace: 5, Header: []byte(`{"k":1}`), Body: []byte("b")},
	}
	c := NewCarry()
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
	require.Equal(t, want, b.Carried(nil))
	data := NewDraft(1)
	data.Add([]byte("x"))
	plain := data.Draft(ident.RequestID{})
	other := plain.Seal(at, 4, 1, 5)
	require.Empty(t, other.Carried(nil))
}

func TestMalformedCarryBatchIsRefused(t *testing.T) {
	c := NewCarry()
	require.NoError(t, c.Add(Message{Seq: 3, Body: []byte("body")}))
	draft := c.Draft()
	good := draft.Bytes[HeaderSize:]
	for cut := 1; cut < len(good); cut++ {
		d := Draft{Bytes: append(make([]byte, HeaderSize), good[:cut]...), Control: ControlCarry}
		d.PayloadCRC = Checksum(d.Bytes[HeaderSize:])
		b := d.Seal(ident.Position{}, 1, 0, 0)
		_, _, err := Decode(b.Bytes)
		require.ErrorIs(t, err, ErrCorrupt, "cut at %d", cut)
	}
}
