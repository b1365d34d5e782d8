package bench

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// conn is a bare NSQ client: it makes as little work as it can, so that what is
// measured is the server.
type conn struct {
	net.Conn
	r *bufio.Reader // one goroutine's
	w *bufio.Writer // one goroutine's, with h
	h [8]byte
}

const (
	frameResponse = 0
	frameError    = 1
	frameMessage  = 2
	maxFrame      = 64 << 20
	messageHeader = 26 // timestamp, attempts, id
)

func dial(address string, timeout time.Duration) (*conn, error) {
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(timeout)) // the whole run is bounded
	x := newConn(c)
	_, _ = x.w.WriteString("  V2")
	return x, x.identify(`{"client_id":"bench","hostname":"bench","heartbeat_interval":60000,"output_buffer_timeout":-1,"output_buffer_size":65536}`)
}

func newConn(c net.Conn) *conn {
	return &conn{Conn: c, r: bufio.NewReaderSize(c, 256<<10), w: bufio.NewWriterSize(c, 256<<10)}
}

// identify sends the settings; any answer but an error will do.
func (c *conn) identify(settings string) error {
	_, _ = c.w.WriteString("IDENTIFY\n")
	c.body([]byte(settings))
	if err := c.w.Flush(); err != nil {
		return err
	}
	_, err := c.response()
	return err
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

// frame reads one frame; its data is valid until the next read. Nothing is
// consumed before the frame is whole, so a read that timed out can go on later.
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

// response reads the next answer, and answers heartbeats on the way.
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
