package main

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// client writes the protocol byte by byte, so that it can also violate it.
type client struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func (b *broker) dial() *client {
	b.t.Helper()
	network, address := "tcp", b.address(0)
	if b.tcpSocket != "" {
		network, address = "unix", b.tcpSocket
	}
	conn, err := b.dialer.Dial(network, address)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = conn.Close() })
	c := &client{t: b.t, conn: conn, in: bufio.NewReader(conn)}
	c.send("  V2")
	return c
}

// send writes text as it is.
func (c *client) send(format string, args ...any) {
	c.t.Helper()
	_, err := fmt.Fprintf(c.conn, format, args...)
	require.NoError(c.t, err)
}

// command sends a line and a body with its length.
func (c *client) command(body, format string, args ...any) {
	c.t.Helper()
	line := fmt.Sprintf(format, args...) + "\n"
	_, err := c.conn.Write(append(binary.BigEndian.AppendUint32([]byte(line), uint32(len(body))), body...))
	require.NoError(c.t, err)
}

// next reads the next frame that is no heartbeat.
func (c *client) next() (kind uint32, data string) {
	c.t.Helper()
	for {
		require.NoError(c.t, c.conn.SetReadDeadline(time.Now().Add(limit)))
		var head [8]byte
		_, err := io.ReadFull(c.in, head[:])
		require.NoError(c.t, err)
		body := make([]byte, binary.BigEndian.Uint32(head[:4])-4)
		_, err = io.ReadFull(c.in, body)
		require.NoError(c.t, err)
		if kind, data = binary.BigEndian.Uint32(head[4:]), string(body); data != "_heartbeat_" {
			return kind, data
		}
		c.send("NOP\n")
	}
}

// expect checks the next frame's text.
func (c *client) expect(want string) {
	c.t.Helper()
	_, data := c.next()
	require.Equal(c.t, want, data)
}

// expectEnd checks that the broker closes the connection.
func (c *client) expectEnd() {
	c.t.Helper()
	require.NoError(c.t, c.conn.SetReadDeadline(time.Now().Add(limit)))
	_, err := io.Copy(io.Discard, c.in)
	var timeout net.Error
	if err != nil {
		require.NotErrorAs(c.t, err, &timeout, "the broker keeps the connection")
	}
}

// message reads a delivery.
func (c *client) message() (id string, attempts uint16, body string) {
	c.t.Helper()
	kind, data := c.next()
	require.EqualValues(c.t, 2, kind, data)
	return data[10:26], binary.BigEndian.Uint16([]byte(data[8:10])), data[26:]
}

func (c *client) put(topic, body string) {
	c.t.Helper()
	c.command(body, "PUB %s", topic)
	c.expect("OK")
}

// identify returns the reply's fields.
func (c *client) identify(fields map[string]any) map[string]any {
	c.t.Helper()
	fields["feature_negotiation"] = true
	body, err := json.Marshal(fields)
	require.NoError(c.t, err)
	c.command(string(body), "IDENTIFY")
	_, data := c.next()
	reply := map[string]any{}
	require.NoError(c.t, json.Unmarshal([]byte(data), &reply), data)
	return reply
}

// consume subscribes with a RDY count.
func (c *client) consume(topic, channel string, n int) {
	c.t.Helper()
	c.send("SUB %s %s\n", topic, channel)
	c.expect("OK")
	c.send("RDY %d\n", n)
}

// upgrade uses TLS from here on.
func (c *client) upgrade(config *tls.Config) error {
	conn := tls.Client(c.conn, config)
	if err := conn.Handshake(); err != nil {
		return err
	}
	c.conn, c.in = conn, bufio.NewReader(conn)
	return nil
}
