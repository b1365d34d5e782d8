package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
)

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "plain é – “x” 日本": "plain é – “x” 日本", "a\x1b[2Jb": `a\x1b[2Jb`, "a\r\nb": `a\r\nb`, "a\xffb": `a\xffb`,
		"a\u009b31m": `a\u009b31m`, "a\u202eb": `a\u202eb`, "\x00": `\x00`, "\ufffd": "\ufffd",
	} {
		require.Equal(t, want, api.Printable(text))
		require.Equal(t, text == want, api.IsPrintable(text))
	}
}

func TestCount(t *testing.T) {
	require.Equal(t, "0 puts", api.Count(0, "put"))
	require.Equal(t, "1 put", api.Count(int64(1), "put"))
	require.Equal(t, "2 puts", api.Count(uint64(2), "put"))
}
