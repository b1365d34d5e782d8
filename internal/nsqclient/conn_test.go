package nsqclient

import (
	"bytes"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// written returns the bytes of commands.
func written(t *testing.T, write func(c *Conn)) string {
	t.Helper()
	var b bytes.Buffer
	here, there := net.Pipe()
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	c := New(here)
	c.W.Reset(&b)
	write(c)
	require.NoError(t, c.W.Flush())
	return b.String()
}

// TestPublishedBytes: a message alone and several, without a header and with one.
func TestPublishedBytes(t *testing.T) {
	one, two := []byte("one"), []byte("to")
	for want, p := range map[string]struct {
		header []byte
		bodies [][]byte
	}{
		"PUB a\n\x00\x00\x00\x03one":                                                    {nil, [][]byte{one}},
		"PUB_EXT a\n\x00\x00\x00\x07\x00\x02{}one":                                      {[]byte("{}"), [][]byte{one}},
		"MPUB a\n\x00\x00\x00\x11\x00\x00\x00\x02\x00\x00\x00\x03one\x00\x00\x00\x02to": {nil, [][]byte{one, two}},
		"MPUB_EXT a\n\x00\x00\x00\x19\x00\x00\x00\x02\x00\x00\x00\x07\x00\x02{}one\x00\x00\x00\x06\x00\x02{}to": {
			[]byte("{}"), [][]byte{one, two}},
	} {
		require.Equal(t, want, written(t, func(c *Conn) { c.Publish("a", p.header, p.bodies) }))
	}
}

// TestFrames: a frame that fits the buffer, a longer one, and bytes that are no frames.
func TestFrames(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 2*bufferSize)
	size := []byte{0, 8, 0, 4, 0, 0, 0, FrameMessage}
	require.Len(t, long, 8<<16)
	stream := io.MultiReader(bytes.NewReader([]byte("\x00\x00\x00\x06\x00\x00\x00\x00OK")), bytes.NewReader(append(size, long...)),
		bytes.NewReader([]byte("HTTP/1.1 400")))
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	c := New(here)
	c.R.Reset(stream)
	kind, data, err := c.Frame()
	require.NoError(t, err)
	require.EqualValues(t, FrameResponse, kind)
	require.Equal(t, "OK", string(data))
	kind, data, err = c.Frame()
	require.NoError(t, err)
	require.EqualValues(t, FrameMessage, kind)
	require.Equal(t, long, data)
	_, _, err = c.Frame()
	require.ErrorContains(t, err, "does not use the NSQ protocol")
}
