package attack

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/nsqtext"
)

// client writes the NSQ protocol byte by byte, so that it can also violate it.
type client struct {
	conn net.Conn
	in   *bufio.Reader
}

// connect opens a connection at the TCP port and sends the magic; with TLS where the broker
// requires it.
func (b *broker) connect(from string) (*client, error) {
	conn, err := dial(from, b.address(tcpPort))
	if err != nil {
		return nil, err
	}
	c := &client{conn: conn, in: bufio.NewReader(conn)}
	_ = conn.SetDeadline(time.Now().Add(limit))
	if _, err := io.WriteString(conn, "  V2"); err != nil {
		_ = conn.Close()
		return nil, err
	}
	if b.ca != nil {
		if err := c.upgrade(b); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	return c, nil
}

func (c *client) upgrade(b *broker) error {
	if _, err := c.command("IDENTIFY", `{"feature_negotiation":true,"tls_v1":true}`); err != nil {
		return err
	}
	over, err := secure(c.conn, b.ca.Client(""))
	if err != nil {
		return err
	}
	c.conn, c.in = over, bufio.NewReader(over)
	_, text, err := c.next()
	if err == nil && text != "OK" {
		err = errors.New(text)
	}
	return err
}

// client connects, and logs in with a token if there is one.
func (b *broker) client(t testing.TB, token string) *client {
	t.Helper()
	c, err := b.connect("")
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.conn.Close() })
	if token != "" {
		text, err := c.command("AUTH", token)
		require.NoError(t, err)
		require.Contains(t, text, `"identity"`)
	}
	return c
}

// command sends a line with a body, and gives the answer.
func (c *client) command(line, body string) (string, error) {
	if _, err := io.WriteString(c.conn, line+"\n"+nsqtext.Sized(body)); err != nil {
		return "", err
	}
	_, text, err := c.next()
	return text, err
}

// next reads the next frame that is no heartbeat.
func (c *client) next() (kind uint32, data string, err error) {
	for {
		var head [8]byte
		if _, err := io.ReadFull(c.in, head[:]); err != nil {
			return 0, "", err
		}
		size := binary.BigEndian.Uint32(head[:])
		if size < 4 || size > 16<<20 {
			return 0, "", fmt.Errorf("frame of %d bytes", size)
		}
		body := make([]byte, size-4)
		if _, err := io.ReadFull(c.in, body); err != nil {
			return 0, "", err
		}
		if data = string(body); data != "_heartbeat_" {
			return binary.BigEndian.Uint32(head[4:]), data, nil
		}
		if _, err := io.WriteString(c.conn, "NOP\n"); err != nil {
			return 0, "", err
		}
	}
}

// put publishes, and expects OK.
func (c *client) put(topic, body string) error {
	text, err := c.command("PUB "+topic, body)
	if err == nil && text != "OK" {
		err = errors.New(text)
	}
	return err
}

// expect checks the beginning of an answer.
func expect(t testing.TB, want, got string, err error) {
	t.Helper()
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(got, want), "%q does not begin with %q", got, want)
}
