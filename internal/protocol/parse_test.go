package protocol

import (
	"bytes"
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
