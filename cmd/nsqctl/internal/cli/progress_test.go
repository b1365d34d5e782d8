package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStatusLineElsewhere: on an output that is no terminal each change is a line.
func TestStatusLineElsewhere(t *testing.T) {
	var out strings.Builder
	line := StatusLine{Out: &out}
	for _, text := range []string{"a", "a", "b", "b", "a"} {
		line.Show(text)
	}
	line.Clear()
	require.Equal(t, "a\nb\na\n", out.String())
}
