package tcp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// usual are headers that flatHeader must read itself: otherwise each costs a decoder.
var usual = []string{
	`{}`, ` { } `, `{"##id":"order-1"}`, `{"##seq":0}`, `{"##seq":123456789012345}`, `{"##key":"k","##id":"é","a":"b","n":12}`, `{"##key":""}`,
	"\t{\r\n\"a\" : \"b\" , \"c\":\"\"\n}\n", `{"##ttl_ms":1000,"##only_channel":"ch"}`, `{"##trace_id":"18446744073709551615"}`,
	`{"##key":"first","##key":"second"}`, `{"a":"` + "\u2028\U0001f600" + `","#":"x"}`, `{"` + api.HeaderTag + `":"t"}`, `{"##compressed":"gzip"}`,
	`{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`,
}

// unusual are headers that it must leave to encoding/json: some of them are to be refused.
var unusual = []string{
	``, ` `, `null`, `[]`, `{`, `}`, `{}}`, `{}x`, `{,}`, `{"a"}`, `{"a":}`, `{"a":"b",}`, `{"a":"b" "c":"d"}`, `{"a":"b}`, `{"a":tru}`, `{"a":00}`,
	`{"a":null}`, `{"a":true}`, `{"a":{"b":"c"}}`, `{"a":["b"]}`, `{"a":-1}`, `{"a":1.0}`, `{"a":1e3}`, `{"a":01}`, `{"a":1234567890123456}`, `{"a":1 2}`,
	`{"a":"\n"}`, `{"a":"` + "\n" + `"}`, `{"\u0023#id":"x"}`, `{"é":"x"}`, "{\"a\":\"\xff\"}", "{\"\xff\":\"a\"}", "{\"\ufffd\":\"a\"}", `{"":"x"}`,
	`{"` + strings.Repeat("x", 129) + `":"x"}`, `{"##id":7}`, `{"##id":""}`, `{"##id":null}`, `{"##id":"` + strings.Repeat("x", 65) + `"}`,
	`{"##id":"","##id":"x"}`, `{"##id":"x","##seq":1}`, `{"##seq":"1"}`, `{"##seq":9007199254740992}`, `{"##seq":9007199254740991}`, `{"##seq":-0}`,
	`{"##key":7}`, `{"##key":7,"##key":"k"}`, `{"##only_channel":1}`, `{"##ttl_ms":0}`, `{"##ttl_ms":"5"}`, `{"##ttl_ms":4398046511105}`, `{"##trace_id":1}`,
	`{"##trace_id":"x"}`, `{"##trace_id":"18446744073709551616"}`, `{"##trace_id":"1_0"}`, `{"##epoch":9}`, `{"##epoch":"9"}`, `{"##priority":"9"}`, `{"##":"x"}`,
	"\ufeff{}", "{\u00a0}", "{\v}",
}

// alike compares what flatHeader reads from a header with the decoder. It reports whether flatHeader read it.
func alike(t testing.TB, b []byte) bool {
	t.Helper()
	flat, ok := flatHeader(b)
	if !ok {
		return false
	}
	decoded, err := anyHeader("PUB_EXT", b)
	require.NoError(t, err, "%q is refused by the decoder", b)
	require.Equal(t, shown(decoded), shown(flat), "%q", b)
	require.True(t, flat.id == nil || queue.ValidID(string(flat.id)))
	return true
}

// shown is a header without the difference of slices that alias another one.
func shown(h header) string {
	return fmt.Sprintf("%q %t %q %t %+v", h.key, h.key == nil, h.id, h.id == nil, h)
}

func TestFlatHeaders(t *testing.T) {
	for _, text := range usual {
		require.True(t, alike(t, []byte(text)), "%s is left to the decoder", text)
	}
	for _, text := range unusual {
		require.False(t, alike(t, []byte(text)), "%s is not", text)
	}
}

// FuzzHeader: flatHeader takes no header that the decoder refuses, and reads the others as it does.
func FuzzHeader(f *testing.F) {
	for _, text := range append(usual, unusual...) {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) { alike(t, b) })
}

// TestAHeaderKeepsNoScratch: an item's header does not change when its input bytes do.
func TestAHeaderKeepsNoScratch(t *testing.T) {
	b := []byte(`{"##key":"k","##id":"x"}`)
	x := item{Message: queue.Message{Header: b}}
	require.NoError(t, x.readHeader("PUB_EXT"))
	clear(b)
	require.Equal(t, "k", string(x.key))
	require.Equal(t, queue.IdentityOf([]byte("x")), x.Identity)
}

// BenchmarkHeader reads the header of a message with an id.
func BenchmarkHeader(b *testing.B) {
	for name, text := range map[string]string{"flat": `{"##id":"0123456789abcdef"}`, "any": `{"##id":"0123456789abcdef","n":null}`} {
		b.Run(name, func(b *testing.B) {
			x := item{Message: queue.Message{Header: []byte(text)}}
			b.ReportAllocs()
			for b.Loop() {
				if err := x.readHeader("PUB_EXT"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
