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
	r *bufio.Reader
	w *bufio.Writer
	h [8]byte
}

const (
	frameResponse = 0
	frameError    = 1
	frameMessage  = 2
	maxFrame      = 64 << 20
)

func dial(address string, timeout time.Duration) (*conn, error) {
	c, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(timeout)) // the whole run is bounded
	x := &conn{Conn: c, r: bufio.NewReaderSize(c, 256<<10), w: bufio.NewWriterSize(c, 256<<10)}
	_, _ = x.w.WriteString("  V2")
	return x, x.identify(`{"client_id":"bench","hostname":"bench","heartbeat_interval":60000,"output_buffer_timeout":-1,"output_buffer_size":65536}`)
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

// frame reads one frame; its data is valid until the next read.
func (c *conn) frame() (kind uint32, data []byte, err error) {
	if _, err := io.ReadFull(c.r, c.h[:]); err != nil {
		return 0, nil, err
	}
	size, kind := binary.BigEndian.Uint32(c.h[:4]), binary.BigEndian.Uint32(c.h[4:])
	if size < 4 || size > maxFrame {
		return 0, nil, fmt.Errorf("bench: frame of %d bytes", size)
	}
	n := int(size - 4)
	if n <= c.r.Size() {
		data, err = c.r.Peek(n)
		if err == nil {
			_, err = c.r.Discard(n)
		}
		return kind, data, err
	}
	data = make([]byte, n)
	_, err = io.ReadFull(c.r, data)
	return kind, data, err
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
			_, _ = c.w.WriteString("NOP\n")
			if err := c.w.Flush(); err != nil {
				return nil, err
			}
		default:
			return data, nil
		}
	}
}
