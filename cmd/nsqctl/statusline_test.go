package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStatusLineElsewhere: on an output that is no terminal each change is a line.
func TestStatusLineElsewhere(t *testing.T) {
	var out strings.Builder
	line := statusLine{out: &out}
	for _, text := range []string{"a", "a", "b", "b", "a"} {
		line.show(text)
	}
	line.clear()
	require.Equal(t, "a\nb\na\n", out.String())
}
