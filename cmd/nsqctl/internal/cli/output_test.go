package cli

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestNothingIsDone: a command that prints nothing answers in JSON and YAML too.
func TestNothingIsDone(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for format, want := range map[string]string{"json": "{\n  \"result\": \"done\"\n}\n", "yaml": "result: done\n", "table": ""} {
		out, err := run(t, time.Minute, "profile", "use", "-o", format)
		require.NoError(t, err)
		require.Equal(t, want, out)
	}
}

func TestStructured(t *testing.T) {
	var out bytes.Buffer
	s := &structured{to: &out, yaml: true}
	for _, piece := range []string{`{"big":1234567890`, `123456789,"f":0.5}`, "\n[1", "]\nrest"} {
		_, err := s.Write([]byte(piece))
		require.NoError(t, err)
	}
	require.NoError(t, s.close())
	require.Equal(t, "big: 1234567890123456789\nf: 0.5\n---\n- 1\nrest\n", out.String())
}
