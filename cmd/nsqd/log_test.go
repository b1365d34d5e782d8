package main

import (
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
)

// TestALineIsALine: an entry is one line of printable characters, whatever a stranger has sent.
// A name may hold what a terminal obeys.
func TestALineIsALine(t *testing.T) {
	for _, foreign := range []string{"a\x1b[2Jb", "a\nb", "a\r\n[nsqd] forged", "a\x00b", "a\xffb", "a\u009b31mb", "a\u2028b", "\x07", "a\u202eb"} {
		for _, e := range []*logrus.Entry{
			{Level: logrus.InfoLevel, Message: "said " + foreign, Data: logrus.Fields{}},
			{Level: logrus.InfoLevel, Message: "refused", Data: logrus.Fields{"node": foreign, "error": errors.New(foreign)}},
		} {
			line, err := lineFormat{prefix: "[nsqd] "}.Format(e)
			require.NoError(t, err)
			text, ok := strings.CutSuffix(string(line), "\n")
			require.True(t, ok)
			require.False(t, strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }), "%q", text)
			require.Contains(t, text, "b"[:min(1, strings.Count(foreign, "b"))])
		}
	}
	line, err := lineFormat{prefix: "[nsqd] "}.Format(&logrus.Entry{Level: logrus.WarnLevel, Message: `é “x” {"a":"b"}` + "\n", Data: logrus.Fields{"n": 5, "s": "plain", "q": "two words"}})
	require.NoError(t, err)
	_, text, _ := strings.Cut(string(line), "WARNING: ")
	require.Equal(t, `é “x” {"a":"b"}  n=5 q="two words" s=plain`+"\n", text)
}
