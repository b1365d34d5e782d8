// Package nsqclient is a connection to a broker over the NSQ protocol, for features that go-nsq lacks: headers
// (PUB_EXT), required instead of optional TLS, and measurements that must not include the client's own work. nsqctl
// publishes with it, and the benchmarks publish and consume. Consumers of nsqctl use go-nsq.
//
// A connection does not reconnect and tracks no topics: its user writes commands and reads frames.
//
// # Invariants
//
//  1. With TLS only IDENTIFY is sent in clear text.
//  2. One goroutine may write while another one reads.
package nsqclient

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"time"
)

// The kinds of frames, and the text of a response that is a heartbeat.
const (
	FrameResponse = 0
	FrameError    = 1
	FrameMessage  = 2
	Heartbeat     = "_heartbeat_"

	maxFrame   = 64 << 20
	bufferSize = 256 << 10
)

// ErrNoTLS means that TLS is required and the broker does not offer it.
var ErrNoTLS = errors.New("the broker at this port does not use TLS, but --tls is given: nothing was sent")

// Refusal is an error frame.
type Refusal struct{ Text string }

// Error implements error.
func (r *Refusal) Error() string { return r.Text }

// Dialer opens connections.
type Dialer struct {
	TLS      *tls.Config    // nil: plain text
	Secret   string         // for AUTH, if the broker requires it
	Identify map[string]any // further settings of IDENTIFY
	Timeout  time.Duration  // bounds the TCP handshake
	// Open opens the stream; nil: a net.Dialer. Tests in virtual time have no sockets.
	Open func(ctx context.Context, network, address string) (net.Conn, error)
}

// Conn is a connection after IDENTIFY, TLS and AUTH.
type Conn struct {
	net.Conn
	R    *bufio.Reader
	W    *bufio.Writer // Flush returns the first error of all writes
	head [8]byte       // with W
}

// Dial connects, and sends IDENTIFY and AUTH. ctx and timeout bound only the attempt, with all its answers.
func (d Dialer) Dial(ctx context.Context, address string, timeout time.Duration) (*Conn, error) {
	open := d.Open
	if open == nil {
		open = (&net.Dialer{Timeout: d.Timeout}).DialContext
	}
	raw, err := open(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	abort := context.AfterFunc(ctx, func() { _ = raw.Close() })
	_ = raw.SetDeadline(time.Now().Add(timeout))
	c, err := d.greet(raw, address)
	if !abort() {
		err = ctx.Err()
	}
	switch {
	case err == nil:
		return c, raw.SetDeadline(time.Time{})
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("it accepts connections but does not answer within %s", timeout)
	}
	_ = raw.Close()
	return nil, err
}

// greet negotiates. The certificate must be valid for the address that was dialled.
func (d Dialer) greet(raw net.Conn, address string) (*Conn, error) {
	c := New(raw)
	_, _ = c.W.WriteString("  V2")
	settings := map[string]any{"feature_negotiation": true, "tls_v1": d.TLS != nil}
	maps.Copy(settings, d.Identify)
	body, err := json.Marshal(settings)
	if err != nil {
		return nil, err
	}
	reply, err := c.ask("IDENTIFY", body)
	if err != nil {
		return nil, err
	}
	var negotiated struct {
		TLS  bool `json:"tls_v1"`
		Auth bool `json:"auth_required"`
	}
	_ = json.Unmarshal(reply, &negotiated) // an old broker answers OK: it has no optional features
	if d.TLS != nil {
		if !negotiated.TLS {
			return nil, ErrNoTLS
		}
		config := d.TLS.Clone()
		config.ServerName, _, _ = net.SplitHostPort(address) // dialling has checked it
		inside := tls.Client(raw, config)
		if err := inside.Handshake(); err != nil {
			return nil, err
		}
		c = New(inside)
		if _, err := c.Response(); err != nil {
			return nil, err
		}
	}
	switch {
	case negotiated.Auth && d.Secret == "":
		err = &Refusal{"E_AUTH_FIRST the broker requires a secret (--token-file, or --auth-secret)"}
	case negotiated.Auth:
		_, err = c.ask("AUTH", []byte(d.Secret))
	}
	return c, err
}

// New returns a Conn on a connection that has already been negotiated.
func New(c net.Conn) *Conn {
	return &Conn{Conn: c, R: bufio.NewReaderSize(c, bufferSize), W: bufio.NewWriterSize(c, bufferSize)}
}

// ask sends a command with a body and reads the answer.
func (c *Conn) ask(verb string, body []byte) ([]byte, error) {
	_, _ = c.W.WriteString(verb + "\n")
	c.sized(nil, body)
	if err := c.W.Flush(); err != nil {
		return nil, err
	}
	return c.Response()
}

// Publish writes PUB for one message and MPUB for several; PUB_EXT or MPUB_EXT if there is a header, which all messages
// share.
func (c *Conn) Publish(topic string, header []byte, bodies [][]byte) {
	verb, extra := "PUB", 0
	if len(bodies) > 1 {
		verb = "MPUB"
	}
	if header != nil {
		verb, extra = verb+"_EXT", 2+len(header)
	}
	_, _ = c.W.WriteString(verb)
	_ = c.W.WriteByte(' ')
	_, _ = c.W.WriteString(topic)
	_ = c.W.WriteByte('\n')
	if len(bodies) > 1 {
		total := 4
		for _, b := range bodies {
			total += 4 + extra + len(b)
		}
		binary.BigEndian.PutUint32(c.head[:4], uint32(total))
		binary.BigEndian.PutUint32(c.head[4:], uint32(len(bodies)))
		_, _ = c.W.Write(c.head[:])
	}
	for _, b := range bodies {
		c.sized(header, b)
	}
}

// sized writes the size of a body, its header (if not nil), and the body.
func (c *Conn) sized(header, body []byte) {
	size, head := len(body), c.head[:4]
	if header != nil {
		size, head = size+2+len(header), c.head[:6]
		binary.BigEndian.PutUint16(c.head[4:], uint16(len(header)))
	}
	binary.BigEndian.PutUint32(c.head[:4], uint32(size))
	_, _ = c.W.Write(head)
	_, _ = c.W.Write(header)
	_, _ = c.W.Write(body)
}

// Frame reads one frame; its data is valid until the next read. It consumes nothing before a frame that fits the buffer is
// complete, so that a read that timed out can be repeated.
func (c *Conn) Frame() (kind uint32, data []byte, err error) {
	head, err := c.R.Peek(8)
	if err != nil {
		return 0, nil, err
	}
	size, kind := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:])
	if size < 4 || size > maxFrame {
		return 0, nil, fmt.Errorf("%s does not use the NSQ protocol: a frame of %d bytes", c.RemoteAddr(), size)
	}
	whole := int(4 + size)
	if whole <= c.R.Size() {
		if data, err = c.R.Peek(whole); err != nil {
			return 0, nil, err
		}
		_, err = c.R.Discard(whole)
		return kind, data[8:], err
	}
	data = make([]byte, whole)
	_, err = io.ReadFull(c.R, data)
	return kind, data[8:], err
}

// Response reads the next answer, and answers heartbeats before it.
func (c *Conn) Response() ([]byte, error) {
	for {
		kind, data, err := c.Frame()
		switch {
		case err != nil:
			return nil, err
		case kind == FrameError:
			return nil, &Refusal{string(data)}
		case kind == FrameResponse && string(data) == Heartbeat:
			if _, err := c.Write([]byte("NOP\n")); err != nil { // not through W, which another goroutine may use
				return nil, err
			}
		default:
			return data, nil
		}
	}
}
