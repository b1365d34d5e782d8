package queue

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestContentCoversTheReceivers: a header that decides which consumers receive a message makes it another
// message. A header that names the attempt alone does not, nor does the order of the fields.
func TestContentCoversTheReceivers(t *testing.T) {
	of := func(header string) Identity { return IdentityOfContent(nil, []byte(header), []byte("m")) }
	differ := []string{
		"",
		`{"##only_channel":"a"}`, `{"##only_channel":"b"}`, `{"##only_channel":"a","x":"1"}`,
		`{"##client_dispatch_tag":"blue"}`, `{"##client_dispatch_tag":"green"}`, `{"##channel_filter_tag":"blue"}`,
		`{"region":"eu"}`, `{"region":"us"}`, `{"region":1}`, `{"region":"eu","x":""}`, `{"regio":"neu"}`,
		`{"##ttl_ms":1000}`, `{"##ttl_ms":2000}`,
		`{"##key":"k"}`, `{"##key":""}`, `{"##key":null}`, `{"##key":7}`,
		`{"a":"1","a":"2"}`, `{"a":"2","a":"1"}`, `{"a":"2"}`,
		`{"\ud800":"1"}`, `{"\ud801":"1"}`, "{\"\xff\":\"1\"}", "{\"\xfe\":\"1\"}", "{\"a\":\"\xff\"}", "{\"a\":\"\xfe\"}",
		`[1]`, `7`, `{`, `}`, `{"a":1,}`, `{,"a":1}`, `{"a" 1}`, `{"a":1`, `{"a":1}}`, `{"a":1} 2`,
	}
	seen := map[Identity]string{}
	for _, header := range differ {
		x := of(header)
		other, twice := seen[x]
		require.False(t, twice, "%q and %q", header, other)
		seen[x] = header
	}
	for header, same := range map[string]string{
		`{}`: "", `{"##trace_id":"7"}`: "", ` { "traceparent" : "00-1" , "tracestate":"a" } `: "",
		`{"b":"2", "a":"1","##trace_id":"8"}`: `{"a":"1","b":"2"}`,
		`{"\u0061":"1"}`:                      `{"a":"1"}`,
	} {
		require.Equal(t, of(same), of(header), header)
	}
	keyed := IdentityOfContent([]byte("k"), nil, []byte("m"))
	require.Equal(t, keyed, IdentityOfContent([]byte("k"), []byte(`{"##key":"k"}`), []byte("m")))
	require.Equal(t, keyed, of(`{"##key":"k"}`), "a client that names the partition gives the key in the header alone")
	long := strings.Repeat("x", MaxMessageHeader/2)
	require.NotEqual(t, of(`{"a":"`+long+`1"}`), of(`{"a":"`+long+`2"}`))
	require.NotEqual(t, IdentityOfContent(nil, []byte("{"), []byte("m")), IdentityOfContent(nil, nil, []byte("{m")))
}

// TestFormsOfFields: the usual forms of a JSON object are complete, all others are left to a JSON parser.
func TestFormsOfFields(t *testing.T) {
	for object, want := range map[string][]string{
		`{}`: {}, ` { "a" : "b" , "c":-1.5E+3}`: {`a="b"`, `c=-1.5E+3`}, `{"a":true,"b":0,"c":""}`: {`a=true`, `b=0`, `c=""`},
		`{"a":"b}`: nil, `{"a":}`: nil, `{"a":[1]}`: nil, `{"a" 1}`: nil, `{"a":1,}`: nil, `{"a":1}x`: nil, `{"a":1 "b":2}`: nil, `{"a":"`: nil,
		`{"a":1;2}`: nil, `{"a":T}`: nil,
	} {
		got, s := []string{}, ScanFields([]byte(object))
		for s.Next() {
			got = append(got, string(s.Name)+"="+string(s.Value))
		}
		require.Equal(t, want != nil, s.Complete(), object)
		if want != nil {
			require.Equal(t, want, got, object)
		}
	}
}
