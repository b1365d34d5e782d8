package bench

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// conn is a minimal NSQ client: its own work must not affect the figures of the server.
type conn struct {
	net.Conn
	r *bufio.Reader // only one goroutine uses it
	w *bufio.Writer // only one goroutine uses it, with h
	h [8]byte
}

const (
	frameResponse = 0
	frameError    = 1
	frameMessage  = 2
	maxFrame      = 64 << 20
	messageHeader = 26 // timestamp, attempts, id
)

// settings is the body of IDENTIFY; of its reply only TLS is checked.
const settings = `{"client_id":"bench","hostname":"bench","heartbeat_interval":60000,` +
	`"output_buffer_size":%[2]d,"feature_negotiation":%[1]t,"tls_v1":%[1]t}`

// Output buffers in IDENTIFY. A stock nsqd keeps messages back until its buffer is full, the
// credit is used up or 250 ms have passed. That suits a backlog, but with messages that have
// just been published the figures would contain that wait.
const (
	usual = 0 // the broker's default
	none  = -1
)

// dial connects to a broker; a test replaces it.
var dial = func(address string) (net.Conn, error) { return net.DialTimeout("tcp", address, 5*time.Second) }

// dial opens the i-th connection: connections are spread over the addresses.
func (cfg *Config) dial(i, outputBuffer int) (*conn, error) {
	address := cfg.Addresses[i%len(cfg.Addresses)]
	raw, err := dial(address)
	if err != nil {
		return nil, err
	}
	_ = raw.SetDeadline(time.Now().Add(cfg.Timeout)) // bounds the whole run
	c := newConn(raw)
	if err := c.greet(cfg, address, outputBuffer); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func newConn(c net.Conn) *conn {
	return &conn{Conn: c, r: bufio.NewReaderSize(c, 256<<10), w: bufio.NewWriterSize(c, 256<<10)}
}

// greet sends IDENTIFY, and AUTH with a secret.
func (c *conn) greet(cfg *Config, address string, outputBuffer int) error {
	_, _ = c.w.WriteString("  V2")
	reply, err := c.ask("IDENTIFY", fmt.Sprintf(settings, cfg.TLS != nil, outputBuffer))
	if err == nil && cfg.TLS != nil {
		err = c.upgrade(cfg.TLS, address, reply)
	}
	if err == nil && cfg.Secret != "" {
		_, err = c.ask("AUTH", cfg.Secret)
	}
	return err
}

// upgrade switches to TLS, with a certificate for the dialled address.
func (c *conn) upgrade(config *tls.Config, address string, reply []byte) error {
	if !bytes.Contains(reply, []byte(`"tls_v1":true`)) {
		return errors.New("bench: the broker offers no TLS")
	}
	config = config.Clone()
	config.ServerName, _, _ = net.SplitHostPort(address) // dialling has checked it
	inside := tls.Client(c.Conn, config)
	if err := inside.Handshake(); err != nil {
		return err
	}
	*c = *newConn(inside)
	_, err := c.response()
	return err
}

// ask sends a command with a body, and reads the answer.
func (c *conn) ask(verb, body string) ([]byte, error) {
	_, _ = c.w.WriteString(verb + "\n")
	c.body([]byte(body))
	if err := c.w.Flush(); err != nil {
		return nil, err
	}
	return c.response()
}

func (c *conn) body(b []byte) {
	binary.BigEndian.PutUint32(c.h[:4], uint32(len(b)))
	_, _ = c.w.Write(c.h[:4])
	_, _ = c.w.Write(b)
}

// put writes one PUB, or an MPUB of batch equal messages.
func (c *conn) put(topic string, body []byte, batch int) {
	if batch > 0 {
		c.mpub(topic, body, batch)
	} else {
		c.pub(topic, body)
	}
}

func (c *conn) pub(topic string, body []byte) {
	_, _ = c.w.WriteString("PUB ")
	_, _ = c.w.WriteString(topic)
	_ = c.w.WriteByte('\n')
	c.body(body)
}

func (c *conn) mpub(topic string, body []byte, n int) {
	_, _ = c.w.WriteString("MPUB ")
	_, _ = c.w.WriteString(topic)
	_ = c.w.WriteByte('\n')
	binary.BigEndian.PutUint32(c.h[:4], uint32(4+n*(4+len(body))))
	binary.BigEndian.PutUint32(c.h[4:], uint32(n))
	_, _ = c.w.Write(c.h[:])
	for range n {
		c.body(body)
	}
}

// frame reads one frame; its data is valid until the next read. It consumes nothing before the
// frame is complete, so a read that timed out can be repeated.
func (c *conn) frame() (kind uint32, data []byte, err error) {
	head, err := c.r.Peek(8)
	if err != nil {
		return 0, nil, err
	}
	size, kind := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:])
	if size < 4 || size > maxFrame {
		return 0, nil, fmt.Errorf("bench: frame of %d bytes", size)
	}
	whole := int(4 + size)
	if whole <= c.r.Size() {
		if data, err = c.r.Peek(whole); err != nil {
			return 0, nil, err
		}
		_, err = c.r.Discard(whole)
		return kind, data[8:], err
	}
	data = make([]byte, whole)
	_, err = io.ReadFull(c.r, data)
	return kind, data[8:], err
}

// response reads the next answer, and answers heartbeats before it.
func (c *conn) response() ([]byte, error) {
	for {
		kind, data, err := c.frame()
		switch {
		case err != nil:
			return nil, err
		case kind == frameError:
			return nil, errors.New("bench: the broker answered " + string(data))
		case kind == frameResponse && string(data) == "_heartbeat_":
			// Not through c.w, which another goroutine may be using.
			if _, err := c.Write([]byte("NOP\n")); err != nil {
				return nil, err
			}
		default:
			return data, nil
		}
	}
}
