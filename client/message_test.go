package client

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCommandsAreEncoded compares commands with their bytes.
func TestCommandsAreEncoded(t *testing.T) {
	one := func(m Message) string {
		c, err := encodeOne("t", &m)
		require.NoError(t, err)
		b := c.appendTo(nil)
		require.Len(t, b, c.size())
		return string(b)
	}
	all := func(m ...Message) string {
		c, err := encodeAll("t", m)
		require.NoError(t, err)
		b := c.appendTo(nil)
		require.Len(t, b, c.size())
		return string(b)
	}
	body := []byte("hello")
	require.Equal(t, "PUB t\n\x00\x00\x00\x05hello", one(Message{Body: body}))
	require.Equal(t, "DPUB t 1500\n\x00\x00\x00\x05hello", one(Message{Body: body, Delay: 1500 * time.Millisecond}))
	require.Equal(t, "PUB_EXT t\n\x00\x00\x00\x29\x00\x22"+
		`{"##key":"k","##ttl_ms":9,"a":"b"}`+"hello", one(Message{Body: body, Key: "k", TTL: 9 * time.Millisecond, Headers: Headers{"a": "b"}}))
	require.Equal(t, "PUB_EXT t\n\x00\x00\x00\x13\x00\x0c"+`{"##id":"7"}`+"hello", one(Message{Body: body, ID: "7"}))
	require.Equal(t, "MPUB t\n\x00\x00\x00\x13\x00\x00\x00\x02\x00\x00\x00\x05hello\x00\x00\x00\x02yo", all(Message{Body: body}, Message{Body: []byte("yo")}))
	require.Equal(t, "MPUB_EXT t\n\x00\x00\x00\x21\x00\x00\x00\x02"+
		"\x00\x00\x00\x10\x00\x09"+`{"a":"b"}`+"hello"+
		"\x00\x00\x00\x05\x00\x02{}y", all(Message{Body: body, Headers: Headers{"a": "b"}}, Message{Body: []byte("y")}))
}

// TestMessagesThatNoBrokerWouldStoreAsTheyAre are refused before they are sent.
func TestMessagesThatNoBrokerWouldStoreAsTheyAre(t *testing.T) {
	body := []byte("x")
	for name, m := range map[string]Message{
		"no body":               {},
		"delay with a key":      {Body: body, Delay: time.Second, Key: "k"},
		"delay with an id":      {Body: body, Delay: time.Second, ID: "7"},
		"long id":               {Body: body, ID: strings.Repeat("x", 65)},
		"broken id":             {Body: body, ID: "\xff"},
		"delay with a header":   {Body: body, Delay: time.Second, Headers: Headers{"a": "b"}},
		"delay with a life":     {Body: body, Delay: time.Second, TTL: time.Second},
		"less than a ms":        {Body: body, TTL: time.Microsecond},
		"negative":              {Body: body, Delay: -time.Second},
		"reserved header":       {Body: body, Headers: Headers{"##epoch": "9"}},
		"header without a name": {Body: body, Headers: Headers{"": "9"}},
		"broken UTF-8":          {Body: body, Headers: Headers{"a": "\xff"}},
		"broken key":            {Body: body, Key: "\xff"},
	} {
		_, err := encodeOne("t", &m)
		require.ErrorIs(t, err, ErrInvalid, name)
		require.ErrorIs(t, err, ErrNotStored, name)
		_, err = encodeAll("t", []Message{m})
		require.ErrorIs(t, err, ErrInvalid, name)
	}
	_, err := encodeOne("no/topic", &Message{Body: body})
	require.ErrorIs(t, err, ErrInvalid)
	_, err = encodeOne("t", &Message{Body: body, Headers: Headers{"a": strings.Repeat("x", 70_000)}})
	require.ErrorIs(t, err, ErrTooBig)
	require.ErrorIs(t, err, ErrNotStored)
	for _, all := range [][]Message{{}, {{Body: body, Delay: time.Second}}, {{Body: body, Key: "a"}, {Body: body, Key: "b"}}, {{Body: body, ID: "1"}, {Body: body, ID: "2"}}} {
		_, err = encodeAll("t", all)
		require.ErrorIs(t, err, ErrInvalid)
	}
}

// TestMessageFramesAreDecoded compares message frames with their bytes.
func TestMessageFramesAreDecoded(t *testing.T) {
	const head = "0000000000000001" + "0003" + "30303030303030303030303030303061"
	const tail = "0000000000000009" + "00000002" + "6869"
	decode := func(hexed string) (*Delivery, error) {
		b, err := hex.DecodeString(hexed)
		require.NoError(t, err)
		return decodeDelivery(b)
	}
	d, err := decode(head + "00" + tail)
	require.NoError(t, err)
	require.Equal(t, &Delivery{ID: "000000000000000a", Attempts: 3, Published: time.Unix(0, 1), Sequence: 9, Body: []byte("hi")}, d)

	header := `{"##epoch":7,"##key":"k","##ttl_ms":5,"a":"b","n":1}`
	d, err = decode(head + "04" + "0034" + hex.EncodeToString([]byte(header)) + tail)
	require.NoError(t, err)
	require.Equal(t, Headers{"a": "b", "n": "1"}, d.Headers)
	require.Equal(t, "k", d.Key)
	require.EqualValues(t, 7, d.Token)
	require.Equal(t, "hi", string(d.Body))

	for _, bad := range []string{"", head, head + "00" + tail[:10], head + "02" + tail, head + "04ffff" + tail,
		head + "04" + "0002" + hex.EncodeToString([]byte("[]")) + tail, head + "00" + tail + "00"} {
		_, err = decode(bad)
		require.Error(t, err, bad)
	}
}

// TestAnswersAreJudged: each answer of a broker has its class, and a text that nobody knows
// leaves the put in doubt.
func TestAnswersAreJudged(t *testing.T) {
	for text, want := range map[string]verdict{
		"E_PUB_FAILED PUB failed in doubt, may be stored":                                 {kinds: []error{ErrInDoubt}},
		"E_PUB_FAILED PUB failed something new":                                           {kinds: []error{ErrInDoubt}},
		"E_NEW_CODE x not stored":                                                         {kinds: []error{ErrInDoubt}},
		"E_MPUB_FAILED MPUB failed not enough in-sync replicas (1 of 2), not stored":      {kinds: []error{ErrNotStored}, retry: true, elsewhere: true},
		"E_PUB_FAILED PUB failed rolled back, not stored":                                 {kinds: []error{ErrNotStored}, retry: true, elsewhere: true},
		"E_DPUB_FAILED DPUB failed no leader, not stored":                                 {kinds: []error{ErrNotStored}, retry: true, elsewhere: true},
		"E_PUB_FAILED PUB failed exiting":                                                 {kinds: []error{ErrNotStored}, retry: true, elsewhere: true},
		"E_PUB_FAILED PUB failed not ready, not stored: the users are not known yet":      {kinds: []error{ErrNotStored}, retry: true, elsewhere: true},
		"E_PUB_FAILED PUB failed the cluster cannot do this now: the metadata is missing": {kinds: []error{ErrNotStored}, retry: true, elsewhere: true},
		"E_PUB_FAILED PUB failed topic not found":                                         {kinds: []error{ErrNotStored}},
		"E_PUB_FAILED PUB failed topic not found: topic deleted, not stored":              {kinds: []error{ErrNotStored}},
		"E_PUB_FAILED PUB failed topic is full, not stored":                               {kinds: []error{ErrNotStored}, retry: true},
		"E_PUB_FAILED PUB failed disk reserve reached, not stored":                        {kinds: []error{ErrNotStored}, retry: true},
		"E_PUB_FAILED PUB failed too many puts waiting, not stored":                       {kinds: []error{ErrNotStored, ErrRateLimited}, retry: true},
		"E_PUB_FAILED PUB failed too big, not stored":                                     {kinds: []error{ErrNotStored, ErrTooBig}},
		"E_BAD_MESSAGE PUB message too big 9 > 8":                                         {kinds: []error{ErrNotStored, ErrTooBig}, fatal: true},
		"E_BAD_BODY MPUB body too big 9 > 8":                                              {kinds: []error{ErrNotStored, ErrTooBig}, fatal: true},
		"E_BAD_MESSAGE PUB invalid message body size 0":                                   {kinds: []error{ErrNotStored, ErrInvalid}, fatal: true},
		"E_UNAUTHORIZED AUTH failed for PUB on \"t\" \"\"":                                {kinds: []error{ErrNotStored, ErrUnauthorized}, fatal: true},
		"E_AUTH_FIRST AUTH required before PUB":                                           {kinds: []error{ErrNotStored, ErrUnauthorized}, retry: true, elsewhere: true, fatal: true},
		"E_AUTH_FAILED AUTH failed":                                                       {kinds: []error{ErrNotStored, ErrUnauthorized}, retry: true, elsewhere: true, fatal: true},
		"E_INVALID DPUB timeout 9 out of range 0-8":                                       {kinds: []error{ErrNotStored, ErrInvalid}, fatal: true},
	} {
		require.Equal(t, want, judge(text), text)
	}
	v := (&Options{}).judge("E_AUTH_FIRST AUTH required before PUB")
	require.False(t, v.retry, "without a token")
}
