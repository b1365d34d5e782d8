package filter

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func parse(t testing.TB, text string) *Filter {
	t.Helper()
	f, err := Parse(text)
	require.NoError(t, err, text)
	require.Equal(t, text, f.String())
	return f
}

func TestConditions(t *testing.T) {
	const message = `{"region":"eu-west","n":7,"deep":{"region":"us"},"##client_dispatch_tag":"blue"}`
	for text, want := range map[string]bool{
		"tag=blue": true, "tag=red": false, "tag^=bl": true, "!tag=blue": false, "!tag=red": true,
		"header:region=eu-west": true, "header:region=eu": false, "header:region^=eu": true, "header:region^=west": false,
		"header:region*=*west": true, "header:region*=eu?west": true, "header:region*=eu?est": false, "header:region*=*": true,
		"header:region*=e*-*t": true, "header:region*=e*x*t": false, "header:region*=": false,
		"header:region~=w.st$": true, "header:region~=^west": false, "!header:region~=^west": true,
		"header:missing=": false, "header:missing=x": false, "!header:missing=x": true, "header:missing*=*": false,
		"header:n=7": false, "header:deep=us": false, "header:deep*=*": false, // no strings
	} {
		require.Equal(t, want, parse(t, text).Match([]byte(message)), text)
	}
}

// TestFormsOfTheHeader: the scan and the decoder of JSON agree on every form of the same object.
func TestFormsOfTheHeader(t *testing.T) {
	f := parse(t, "header:région=eü")
	for header, want := range map[string]bool{
		`{"région":"eü"}`: true, `{"r\u00e9gion":"e\u00fc"}`: true, " {\n\t\"région\" : \"eü\" } ": true,
		`{"région":"no","région":"eü"}`: true, `{"région":"eü","région":"no"}`: false, `{"région":"eü","région":1}`: false,
		`{"région":null}`: false, `{"région":["eü"]}`: false, `{}`: false, ``: false, `null`: false, `[]`: false, `{"région":"eü"`: false,
		`{"x":{"région":"eü"}}`: false, `{"x":[1,{"y":"}"}],"région":"eü"}`: true, `{"x":"\"région\":\"eü\"","y":1.5e-7}`: false,
	} {
		require.Equal(t, want, f.Match([]byte(header)), header)
	}
	require.True(t, parse(t, "header:a=b").Match([]byte(`{"\u0061":"b"}`)), "an escaped name is the same name")
	require.True(t, parse(t, `header:a="\`).Match([]byte(`{"a":"\"\\"}`)))
	require.False(t, parse(t, "header:a=b").Match([]byte(`{"a":"b"} trailing`)))
}

// TestSelection: a filter and the name of the only channel both decide.
func TestSelection(t *testing.T) {
	none, red := Selection{Channel: "a"}, Selection{Channel: "a", Filter: parse(t, `header:color=red`)}
	for header, want := range map[string][2]bool{
		`{"color":"red"}`: {true, true}, `{"color":"blue"}`: {true, false}, ``: {true, false},
		`{"##only_channel":"a","color":"red"}`: {true, true}, `{"##only_channel":"b","color":"red"}`: {false, false},
	} {
		require.Equal(t, want, [2]bool{none.Accepts([]byte(header)), red.Accepts([]byte(header))}, header)
	}
}

func TestRefusedFilters(t *testing.T) {
	for text, says := range map[string]string{
		"region": "no condition", "=x": "no condition", "!": "no condition", "header:=x": "names neither", "region=eu": "names neither",
		"header:a^=": "prefix is empty", "header:a~=(": "cannot be read", "header:a*=" + strings.Repeat("*a", 9): "9 wildcards",
		"header:a=" + strings.Repeat("x", maxText): "at most 512", "header:a=\xff": "not UTF-8",
		"header:a~=(x{20}){20}": "instructions, at most 200", "header:a~=(?:x{1000}){1000}": "cannot be read", "header:a~=(a)\\1": "cannot be read",
	} {
		_, err := Parse(text)
		require.ErrorContains(t, err, says, text)
	}
	f, err := Parse("")
	require.NoError(t, err)
	require.Nil(t, f)
	require.Empty(t, f.String())
}

// TestLongValuesMeetNoCondition: the cost of a match is bounded by the value, too.
func TestLongValuesMeetNoCondition(t *testing.T) {
	header := func(n int) []byte { return []byte(`{"a":"` + strings.Repeat("x", n) + `"}`) }
	for _, text := range []string{"header:a^=x", "header:a*=*", "header:a~=x"} {
		require.True(t, parse(t, text).Match(header(maxValue)), text)
		require.False(t, parse(t, text).Match(header(maxValue+1)), text)
		require.True(t, parse(t, "!"+text).Match(header(maxValue+1)), text)
	}
}

// FuzzLookup: the scan finds what encoding/json finds, in every valid object.
func FuzzLookup(f *testing.F) {
	for _, s := range []string{`{"a":"b"}`, `{"a":1,"a":"é"}`, `{ "a" : "\u0061" }`, `{"b":{"a":"c"}}`, `{"a":-1.5E+7}`, `{"a":truth}`, `{}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, object string) {
		var fields map[string]json.RawMessage
		if json.Unmarshal([]byte(object), &fields) != nil || fields == nil {
			return // brokers store no other header
		}
		var want *string
		if json.Unmarshal(fields["a"], &want) != nil {
			want = nil
		}
		value, ok := nameOf("a").Value([]byte(object))
		require.Equal(t, want != nil, ok, object)
		if ok {
			require.Equal(t, *want, string(value), object)
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	header := []byte(`{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","region":"eu-west-1","kind":"order"}`)
	for _, text := range []string{"header:absent=x", "header:kind=refund", "header:region^=us", "header:region*=us-*-?", "header:region~=^us-(west|east)"} {
		f := parse(b, text)
		b.Run(text, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if f.Match(header) {
					b.Fatal("it matches")
				}
			}
		})
	}
}

// FuzzParse: any text of a filter is refused, or is a filter with that text that judges any header.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "tag=a", "!tag=a", "header:a=b", "header:a^=b", "header:a*=*b?c*", "header:a~=^(b|c){2,5}$", "header:~=x", "header:a~=((a{9}){9}){9}", "header:a*=********", "tag~=\\"} {
		f.Add(s, `{"a":"b","##client_dispatch_tag":"a"}`)
	}
	f.Fuzz(func(t *testing.T, text, header string) {
		filter, err := Parse(text)
		if err != nil || filter == nil {
			return
		}
		require.Equal(t, text, filter.String())
		opposite, err := Parse(strings.TrimPrefix("!"+text, "!!"))
		if err != nil {
			return // one byte too long
		}
		require.NotEqual(t, filter.Match([]byte(header)), opposite.Match([]byte(header)), "%q of %q", text, header)
	})
}
