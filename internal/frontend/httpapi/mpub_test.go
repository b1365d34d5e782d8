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

// testDecoder decodes with small limits.
func testDecoder(body io.Reader, d *queue.DraftBuilder) *decoder { return newDecoder(body, d, 10, 100) }

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
		strings.Repeat("x", 11):               {0, errMsgTooBig},
		"12345\n" + strings.Repeat("x\n", 50): {0, errBodyTooBig},
	} {
		d := queue.NewDraft(0)
		err := testDecoder(strings.NewReader(body), d).lines()
		require.Equal(t, want.err, err, "%q", body)
		if err == nil {
			require.Equal(t, want.count, d.Count(), "%q", body)
		}
	}
	for body, want := range map[string]error{
		frame(2, "a", "bc"):               nil,
		frame(2, "a"):                     errBadMessage, // one is missing
		frame(1, ""):                      errBadMessage,
		frame(1, strings.Repeat("x", 11)): errBadMessage,
		frame(0):                          errBadBody,
		frame(1<<30, "a"):                 errBadBody,
		"abc":                             errBadBody,
		frame(1, "abcde")[:10]:            errBadMessage,
	} {
		d := queue.NewDraft(0)
		require.Equal(t, want, testDecoder(strings.NewReader(body), d).binary(), "%q", body)
	}
}

// TestEachMessageHasTheHeader: with a deadline or a header no message is read directly into the batch.
func TestEachMessageHasTheHeader(t *testing.T) {
	o := putArguments{header: []byte(`{"a":"b"}`), deliverAt: 7}
	plain, full := queue.NewDraft(0), queue.NewDraft(0)
	require.NoError(t, testDecoder(strings.NewReader(frame(2, "a", "bc")), plain).binary())
	with := testDecoder(strings.NewReader(frame(2, "a", "bc")), full)
	with.putArguments = o
	require.NoError(t, with.binary())
	require.Equal(t, 2, full.Count())
	require.Greater(t, full.Size(), plain.Size()+2*len(o.header))
}

// TestAConnectionThatFails: this is not an error of the body.
func TestAConnectionThatFails(t *testing.T) {
	broken := io.MultiReader(strings.NewReader("a\n"), iotest.ErrReader(errors.New("reset")))
	require.Equal(t, errRead, testDecoder(broken, queue.NewDraft(0)).lines())
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
	for size, want := range map[int]error{ends[0]: nil, ends[1]: nil, ends[1] + 1: errBodyTooBig, ends[2] - 1: errBodyTooBig, ends[2]: errBodyTooBig} {
		_, err := records(bytes.NewReader(body[:size]), queue.NewDraft(0), 10, int64(ends[1]), 1)
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
