package tcp

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestALineOfSpacesIsCheap: the parts of a line stay in memory until the next command.
func TestALineOfSpacesIsCheap(t *testing.T) {
	line := []byte("NOP" + strings.Repeat(" ", maxLine-4))
	parts := splitParams(line, nil)
	require.Len(t, parts, maxParams+1)
	require.LessOrEqual(t, cap(parts), 4*maxParams)
	require.Equal(t, line, bytes.Join(parts, []byte(" ")), "nothing is lost")
	require.Equal(t, [][]byte{[]byte("SUB"), {}, []byte("t"), []byte("c")}, splitParams([]byte("SUB  t c"), nil))
}

// TestANumberDoesNotWrap: 2^64 milliseconds are not 0.
func TestANumberDoesNotWrap(t *testing.T) {
	for text, want := range map[string]uint64{
		"": 0, "0": 0, "007": 7, "18446744073709551615": math.MaxUint64,
		"18446744073709551616": math.MaxUint64, "18446744073709551617": math.MaxUint64, "184467440737095516160": math.MaxUint64, strings.Repeat("9", 400): math.MaxUint64,
	} {
		n, ok := decimal([]byte(text))
		require.True(t, ok, text)
		require.Equal(t, want, n, text)
	}
	for _, text := range []string{"-1", "1.5", "1e3", "99999999999999999999x"} {
		_, ok := decimal([]byte(text))
		require.False(t, ok, text)
	}
}
