package httpapi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

var testLimits = MPubOptions{MaxMsgSize: 10, MaxBodySize: 100}

func frame(count int, bodies ...string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(count))
	for _, x := range bodies {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(x))), x...)
	}
	return string(b)
}

// TestBodies: each form with its limits; the count is that of the messages.
func TestBodies(t *testing.T) {
	for body, want := range map[string]struct {
		count int
		err   error
	}{
		"a\n\nbc\n":                           {2, nil},
		"a\nwithout an end"[:9]:               {2, nil},
		"":                                    {0, nil},
		strings.Repeat("x", 11):               {0, ErrMsgTooBig},
		"12345\n" + strings.Repeat("x\n", 50): {0, ErrBodyTooBig},
	} {
		d := queue.NewDraft(0)
		err := Lines(strings.NewReader(body), d, testLimits)
		require.Equal(t, want.err, err, "%q", body)
		if err == nil {
			require.Equal(t, want.count, d.Count(), "%q", body)
		}
	}
	for body, want := range map[string]error{
		frame(2, "a", "bc"):               nil,
		frame(2, "a"):                     ErrBadMessage, // one is missing
		frame(1, ""):                      ErrBadMessage,
		frame(1, strings.Repeat("x", 11)): ErrBadMessage,
		frame(0):                          ErrBadBody,
		frame(1<<30, "a"):                 ErrBadBody,
		"abc":                             ErrBadBody,
		frame(1, "abcde")[:10]:            ErrBadMessage,
	} {
		d := queue.NewDraft(0)
		require.Equal(t, want, Binary(strings.NewReader(body), d, testLimits), "%q", body)
	}
}

// TestEachMessageHasTheHeader: with a deadline or a header no message is read directly into the batch.
func TestEachMessageHasTheHeader(t *testing.T) {
	o := testLimits
	o.Header, o.DeliverAt = []byte(`{"a":"b"}`), 7
	plain, full := queue.NewDraft(0), queue.NewDraft(0)
	require.NoError(t, Binary(strings.NewReader(frame(2, "a", "bc")), plain, testLimits))
	require.NoError(t, Binary(strings.NewReader(frame(2, "a", "bc")), full, o))
	require.Equal(t, 2, full.Count())
	require.Greater(t, full.Size(), plain.Size()+2*len(o.Header))
}

// TestAConnectionThatFails: this is not an error of the body.
func TestAConnectionThatFails(t *testing.T) {
	broken := io.MultiReader(strings.NewReader("a\n"), iotest.ErrReader(errors.New("reset")))
	require.Equal(t, ErrRead, Lines(broken, queue.NewDraft(0), testLimits))
}

// TestRecordsAboveTheLimit: a body that is longer than the limit is refused, also where the limit ends a message: the rest would be left
// out, and the answer would be a success.
func TestRecordsAboveTheLimit(t *testing.T) {
	var body []byte
	var ends []int
	for range 3 {
		var err error
		body, _, err = msgstream.AppendMessage(body, lastSum(body), &msgstream.Message{Body: []byte("m")})
		require.NoError(t, err)
		ends = append(ends, len(body))
	}
	for size, want := range map[int]error{ends[0]: nil, ends[1]: nil, ends[1] + 1: ErrBodyTooBig, ends[2] - 1: ErrBodyTooBig, ends[2]: ErrBodyTooBig} {
		o := MPubOptions{MaxMsgSize: 10, MaxBodySize: int64(ends[1]), DeliverAt: 1}
		_, err := Records(bytes.NewReader(body[:size]), queue.NewDraft(0), o)
		require.ErrorIs(t, err, want, "%d bytes", size)
	}
}

// lastSum is the checksum at the end of records, 0 if there is none.
func lastSum(records []byte) uint32 {
	if len(records) == 0 {
		return 0
	}
	return binary.BigEndian.Uint32(records[len(records)-4:])
}
