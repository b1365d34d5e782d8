package queue

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// The hash of an id must never change: the window of a log was derived with it.
func TestIdentitiesStay(t *testing.T) {
	x := IdentityOf([]byte("order-1"))
	part := x.Part(1)
	require.Equal(t, goldenID, hex.EncodeToString(x[:]))
	require.Equal(t, goldenPart, hex.EncodeToString(part[:]))
	require.NotEqual(t, x.Part(0), x.Part(1))
	require.NotEqual(t, x, x.Part(0))

	numbered := IdentityOfSequence("billing-1", 7)
	require.Equal(t, goldenSequence, hex.EncodeToString(numbered[:]))
	require.NotEqual(t, numbered, IdentityOfSequence("billing-1", 8))
	require.NotEqual(t, numbered, IdentityOfSequence("billing-2", 7))
	require.NotEqual(t, numbered, IdentityOf([]byte("\x07\x00\x00\x00\x00\x00\x00\x00billing-1")), "no number is an id")

	content, keyed := IdentityOfContent(nil, nil, []byte("order 1")), IdentityOfContent([]byte("k1"), nil, []byte("order 1"))
	require.Equal(t, goldenContent, hex.EncodeToString(content[:]))
	require.Equal(t, goldenKeyed, hex.EncodeToString(keyed[:]))
	require.NotEqual(t, IdentityOfContent([]byte("k"), nil, []byte("1order 1")), keyed)
	require.NotEqual(t, IdentityOfContent([]byte{}, nil, []byte("order 1")), content, "an empty key is a key")
	copied := IdentityOfCopy(CopyDeadLetter, Source{Topic: 7, Partition: 2, Sequence: 9, Channel: "billing"})
	require.Equal(t, goldenCopy, hex.EncodeToString(copied[:]))
	again := IdentityOfCopy(CopyDeadLetter, Source{Topic: 7, Partition: 2, Sequence: 9, Channel: "billing", ChannelID: 3})
	require.NotEqual(t, copied, again, "of a channel that was created again")
	require.NotEqual(t, copied, IdentityOfCopy(CopyDeadLetter, Source{Topic: 7, Partition: 2, Sequence: 9, Channel: "billing", TimeNS: 1}))
}

const (
	goldenID   = "dcfcdc6ce76c75af034f2e3a5abd856c"
	goldenPart = "44c9c5533428761f69bf744c646c49cb"

	goldenSequence = "7a3d936464206c749165f014f3575537"

	goldenContent = "87c0519dfbfde7315f8cc2f5583583cf"
	goldenKeyed   = "7966211e4547dd9ae6a0dba97141a61e"
	goldenCopy    = "df42597e5b1fc217565fb80cedd81bda"

	goldenData = "4c4b4231010200008e0000000300000044b2bd0b0100000004000000000000006400000000000000070000000000000005000000000000000100000000000000020000000000000000000000ac38a6eb1200000008b7fe48acf1769095342dfda9e3fa9869610200000000621e0000000d050000000000000002007b7daef3e8d3b0e714067b65af95ee22898463"
)

// identifiedDraft has messages with and without identities.
func identifiedDraft(t *testing.T) Draft {
	b := NewDraft(0)
	require.NoError(t, b.AddMessage(Message{Body: []byte("a"), Identity: IdentityOf([]byte("1"))}))
	b.Add([]byte("b"))
	require.NoError(t, b.AddMessage(Message{Body: []byte("c"), Header: []byte(`{}`), Trace: 5, Identity: IdentityOf([]byte("3"))}))
	return b.Draft(ident.RequestID{Producer: 1, N: 2})
}

func TestBatchWithIdentities(t *testing.T) {
	d := identifiedDraft(t)
	require.True(t, d.Identified)
	sealed := d.Seal(ident.Position{Offset: 100, Sequence: 7}, 4, 1, 5)
	require.Equal(t, goldenData, hex.EncodeToString(sealed.Bytes), "the bytes on disk")
	b, _, err := Decode(sealed.Bytes)
	require.NoError(t, err)
	require.True(t, b.Identified)
	require.Equal(t, b, sealed, "what the writer keeps is what a reader gets")
	var got []Identity
	b.Identities(func(n int, x Identity) {
		require.Len(t, got, n)
		got = append(got, x)
	})
	require.Equal(t, []Identity{IdentityOf([]byte("1")), {}, IdentityOf([]byte("3"))}, got)
	messages := b.Messages(7, 9, nil)
	require.Len(t, messages, 3)
	require.Equal(t, "c", string(messages[2].Body))
	require.Equal(t, `{}`, string(messages[2].Header))
	require.Equal(t, got[2], messages[2].Identity)

	again := identifiedDraft(t)
	first, ok := again.First()
	require.True(t, ok)
	require.Equal(t, got[0], first)
	part := again.Keep(func(n int) bool { return n > 0 })
	require.EqualValues(t, 2, part.Count)
	require.Equal(t, again.Request, part.Request)
	require.True(t, part.Identified)
	plain := again.Keep(func(n int) bool { return n == 1 })
	require.False(t, plain.Identified)
	_, ok = plain.First()
	require.False(t, ok)
	for _, x := range []Draft{part, plain} {
		s := x.Seal(ident.Position{}, 1, 0, 0)
		_, _, err := Decode(s.Bytes)
		require.NoError(t, err)
	}
}

// A batch whose header and messages differ would be recognised by some replicas and not by others.
func TestIdentitiesThatTheHeaderDenies(t *testing.T) {
	d := identifiedDraft(t)
	d.Identified = false
	b := d.Seal(ident.Position{}, 1, 0, 0)
	_, _, err := Decode(b.Bytes)
	require.ErrorIs(t, err, ErrCorrupt)
	plain := NewDraft(1)
	plain.Add([]byte("x"))
	d = plain.Draft(ident.RequestID{})
	d.Identified = true
	b = d.Seal(ident.Position{}, 1, 0, 0)
	_, _, err = Decode(b.Bytes)
	require.ErrorIs(t, err, ErrCorrupt)
}

func TestRelocatedMessagesHaveNoIdentity(t *testing.T) {
	c := NewRelocation()
	require.NoError(t, c.Add(Message{Seq: 3, Time: 7, Body: []byte("a"), Identity: IdentityOf([]byte("1"))}))
	d := c.Draft()
	b := d.Seal(ident.Position{}, 1, 0, 0)
	require.Equal(t, []Message{{Seq: 3, Time: 7, Body: []byte("a")}}, b.Relocated(nil))
}

func TestIDInTheHeader(t *testing.T) {
	for _, header := range []string{"", "{}", `{"##ttl_ms":5}`} {
		var fields map[string]any
		require.NoError(t, json.Unmarshal(WithID([]byte(header), `a"b`), &fields), header)
		require.Equal(t, `a"b`, fields[HeaderID])
		require.Len(t, fields, 1+strings.Count(header, ":"))
	}
	for id, valid := range map[string]bool{"": false, "a": true, strings.Repeat("x", 64): true, strings.Repeat("x", 65): false, "\xff": false} {
		require.Equal(t, valid, ValidID(id), "%q", id)
	}
}

// TestByContent: messages without an id get the identity of their content; the rest of them stays.
func TestByContent(t *testing.T) {
	d := identifiedDraft(t)
	key := []byte("k")
	by := d.ByContent(key)
	require.Equal(t, d.Request, by.Request)
	require.Equal(t, d.Count, by.Count)
	messages := func(d Draft) []Message {
		b := d.Seal(ident.Position{}, 1, 0, 5)
		decoded, _, err := Decode(b.Bytes)
		require.NoError(t, err)
		return decoded.Messages(0, 9, nil)
	}
	want := messages(identifiedDraft(t))
	want[1].Identity = IdentityOfContent(key, nil, []byte("b"))
	require.Equal(t, want, messages(by.Clone()))
	same := by.ByContent([]byte("another"))
	require.Same(t, &by.Bytes[0], &same.Bytes[0], "each message has one")
}

// TestOneIdentityForAPut: only the first message has it, the content of the others does not count, and
// the flag without an identity is malformed.
func TestOneIdentityForAPut(t *testing.T) {
	b := NewDraft(0)
	require.NoError(t, b.AddMessage(Message{Body: []byte("a"), IsPutIdentity: true, Identity: IdentityOf([]byte("1"))}))
	b.Add([]byte("b"))
	d := b.Draft(ident.RequestID{})
	require.True(t, d.HasPutIdentity())
	by := d.ByContent(nil)
	require.Same(t, &d.Bytes[0], &by.Bytes[0])
	d.Clock = 7
	sealed := d.Seal(ident.Position{}, 1, 0, 5)
	require.Equal(t, "1200000018", hex.EncodeToString(sealed.Bytes[HeaderSize:HeaderSize+5]), "length and flags of the first message")
	decoded, _, err := Decode(sealed.Bytes)
	require.NoError(t, err)
	require.Equal(t, decoded, sealed)
	require.EqualValues(t, 7, sealed.Clock)
	got := decoded.Messages(0, 9, nil)
	require.True(t, got[0].IsPutIdentity)
	require.False(t, got[1].IsPutIdentity)
	_, ok := decodeMessage([]byte{messagePutIdentity, 'x'})
	require.False(t, ok)
	plain := identifiedDraft(t)
	require.False(t, plain.HasPutIdentity())
	empty := Draft{Bytes: make([]byte, HeaderSize+4), Identified: true}
	require.False(t, empty.HasPutIdentity())
	require.Nil(t, empty.FirstHeader())
}

// TestMarkOfACutLog: a mark names nothing above the end of the log, and stays a mark.
func TestMarkOfACutLog(t *testing.T) {
	m := IdentityMark{From: 100, End: 200, ClockMS: 5, Forgotten: 3}
	for cut, want := range map[ident.Offset][2]ident.Offset{300: {100, 200}, 150: {100, 150}, 50: {50, 50}, 0: {0, 1}} {
		got := m.Cut(cut)
		require.Equal(t, IdentityMark{From: want[0], End: want[1], ClockMS: 5, Forgotten: 3}, got)
	}
	require.Zero(t, IdentityMark{}.Cut(50))
}
