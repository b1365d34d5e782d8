package nsqd_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/filter"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestHeaderOfADeadLetter: one that cannot go along stays behind, and not the message.
func TestHeaderOfADeadLetter(t *testing.T) {
	for header, kept := range map[string]bool{
		`{"a":"b"}`: true, `{"a"`: false, `{"a":"` + strings.Repeat("b", queue.MaxMessageHeader) + `"}`: false, "": false,
	} {
		d := api.Delivery{Message: queue.Message{Header: []byte(header), Attempts: 3}}
		raw := nsqd.EncodeDeadLetter("orders", "billing", d)
		require.LessOrEqual(t, len(raw), queue.MaxMessageHeader)
		h, ok := nsqd.DecodeDeadLetter(raw)
		require.True(t, ok, "%.20s", header)
		require.Equal(t, "billing", h.Channel)
		require.Equal(t, kept, len(h.Header) > 0)
	}
}

// TestHeaderThatIsMovedBack: it is the one that the message had, for one channel alone.
func TestHeaderThatIsMovedBack(t *testing.T) {
	for header, want := range map[string]map[string]any{
		`{"a":1e9}`: {"a": json.Number("1e9"), "##redriven_id": "0042"},
		`[1]`:       {"##redriven_id": "0042"},
		`null`:      {"##redriven_id": "0042"},
		``:          {"##redriven_id": "0042"},
		`{"a":"` + strings.Repeat("b", queue.MaxMessageHeader-8) + `"}`: {},
	} {
		h := nsqd.DeadLetterHeader{Channel: `bill"ing`, ID: "0042", Header: json.RawMessage(header)}
		d := json.NewDecoder(strings.NewReader(string(h.Redriven())))
		d.UseNumber()
		got := map[string]any{}
		require.NoError(t, d.Decode(&got))
		want[filter.HeaderOnlyChannel] = `bill"ing`
		require.Equal(t, want, got, "%.20s", header)
	}
	_, ok := nsqd.DecodeDeadLetter([]byte("no JSON"))
	require.False(t, ok)
}
