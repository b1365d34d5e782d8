package publisher

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/internal/api"
)

// The frames of the NSQ protocol.
const (
	frameResponse = 0
	frameError    = 1
	maxFrame      = 16 << 20
	heartbeat     = "_heartbeat_"
)

// greetTimeout bounds IDENTIFY, TLS and AUTH together. It is longer than a broker that starts
// holds its clients (--put-hold, 9 s): then the broker gives the reason.
const greetTimeout = 12 * time.Second

// ErrNoTLS means that TLS is required and a broker does not offer it.
var ErrNoTLS = errors.New("the broker at this port does not use TLS, but --tls is given: nothing was sent")

// Dialer has the settings of connections.
type Dialer struct {
	TLS     *tls.Config   // nil: plain text
	Secret  string        // for AUTH, if a broker requires it; "" = none
	Timeout time.Duration // bounds the TCP handshake
	// Open opens connections; nil: a net.Dialer. Tests in virtual time have no sockets.
	Open func(ctx context.Context, network, address string) (net.Conn, error)
}

// Check connects to a broker once. The error is ErrNoTLS if TLS is required and the broker
// does not offer it.
func (d Dialer) Check(ctx context.Context, address string) error {
	c, err := d.dial(ctx, address, greetTimeout)
	if err == nil {
		c.close()
	}
	return err
}

// refusedError is an error frame of the broker.
type refusedError struct{ text string }

func (e *refusedError) Error() string { return e.text }

// conn is a connection to a broker after IDENTIFY, TLS and AUTH. One goroutine may write
// while another one reads.
type conn struct {
	address string
	conn    net.Conn
	r       *bufio.Reader
	w       *bufio.Writer
	closed  chan struct{} // closed by close
}

// dial connects and sends IDENTIFY. If TLS is required, only IDENTIFY is sent without it.
// ctx and timeout bound only the attempt, with all its answers.
func (d Dialer) dial(ctx context.Context, address string, timeout time.Duration) (*conn, error) {
	open := d.Open
	if open == nil {
		open = (&net.Dialer{Timeout: d.Timeout}).DialContext
	}
	raw, err := open(ctx, "tcp", address)
	if err != nil {
		return nil, brokerapi.Reason(err)
	}
	c := newConn(address, raw)
	abort := context.AfterFunc(ctx, func() { _ = raw.Close() })
	_ = raw.SetDeadline(time.Now().Add(timeout))
	err = d.greet(c)
	if !abort() {
		err = ctx.Err()
	}
	if err != nil {
		_ = raw.Close()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("it accepts connections but does not answer within %s", timeout)
		}
		return nil, brokerapi.Reason(err)
	}
	return c, c.conn.SetDeadline(time.Time{})
}

func newConn(address string, c net.Conn) *conn {
	return &conn{
		address: address, conn: c, r: bufio.NewReaderSize(c, 64<<10), w: bufio.NewWriterSize(c, 64<<10), closed: make(chan struct{}),
	}
}

// close ends the connection and the reader. It may be called once.
func (c *conn) close() {
	close(c.closed)
	_ = c.conn.Close() // unsent bytes are dropped
}

// negotiated holds the used fields of the answer to IDENTIFY.
type negotiated struct {
	TLS  bool `json:"tls_v1"`
	Auth bool `json:"auth_required"`
}

func (d Dialer) greet(c *conn) error {
	host, _ := os.Hostname() // "" is a valid value
	body, err := json.Marshal(map[string]any{
		"client_id": host, "hostname": host, "user_agent": "nsqctl/" + api.ReadBuild().Version,
		"feature_negotiation": true, "tls_v1": d.TLS != nil,
	})
	if err != nil {
		return err
	}
	_, _ = c.w.WriteString("  V2")
	reply, err := c.ask("IDENTIFY", body)
	if err != nil {
		return err
	}
	var n negotiated
	_ = json.Unmarshal(reply, &n) // an old broker answers OK: it has no optional features
	if d.TLS != nil {
		if !n.TLS {
			return ErrNoTLS
		}
		if err := c.upgrade(d.TLS); err != nil {
			return err
		}
	}
	switch {
	case n.Auth && d.Secret == "":
		return &refusedError{"E_AUTH_FIRST the broker requires a secret (--token-file, or --auth-secret)"}
	case n.Auth:
		_, err = c.ask("AUTH", []byte(d.Secret))
	}
	return err
}

// upgrade switches to TLS; the certificate must be valid for the dialled address.
func (c *conn) upgrade(config *tls.Config) error {
	config = config.Clone()
	config.ServerName, _, _ = net.SplitHostPort(c.address) // dialling has checked it
	inside := tls.Client(c.conn, config)
	if err := inside.Handshake(); err != nil {
		return err
	}
	*c = *newConn(c.address, inside)
	_, err := c.response()
	return err
}

// ask sends a command with a body and reads the answer.
func (c *conn) ask(verb string, body []byte) ([]byte, error) {
	_, _ = c.w.WriteString(verb + "\n") // Flush returns the error
	c.body(body)
	if err := c.w.Flush(); err != nil {
		return nil, err
	}
	return c.response()
}

func (c *conn) size(n int) {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(n))
	_, _ = c.w.Write(b[:]) // Flush returns the error
}

func (c *conn) body(b []byte) {
	c.size(len(b))
	_, _ = c.w.Write(b) // Flush returns the error
}

// publish writes one PUB, or an MPUB of several messages; with a header PUB_EXT and MPUB_EXT.
func (c *conn) publish(topic string, header []byte, bodies [][]byte) {
	verb, extra := "PUB", 0
	if len(bodies) > 1 {
		verb = "MPUB"
	}
	if header != nil {
		verb, extra = verb+"_EXT", 2+len(header)
	}
	_, _ = c.w.WriteString(verb + " " + topic + "\n")
	if len(bodies) > 1 {
		total := 4
		for _, b := range bodies {
			total += 4 + extra + len(b)
		}
		c.size(total)
		c.size(len(bodies))
	}
	for _, b := range bodies {
		c.size(extra + len(b))
		if header != nil {
			_, _ = c.w.Write(binary.BigEndian.AppendUint16(nil, uint16(len(header))))
			_, _ = c.w.Write(header)
		}
		_, _ = c.w.Write(b)
	}
}

// frame reads the next frame.
func (c *conn) frame() (kind uint32, data []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(c.r, head[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(head[:4])
	if size < 4 || size > maxFrame {
		return 0, nil, fmt.Errorf("%s does not use the NSQ protocol: a frame of %d bytes", c.address, size)
	}
	data = make([]byte, size-4)
	_, err = io.ReadFull(c.r, data)
	return binary.BigEndian.Uint32(head[4:]), data, err
}

// response reads the next answer. It skips heartbeats, which the connection is too young to
// have to answer.
func (c *conn) response() ([]byte, error) {
	for {
		kind, data, err := c.frame()
		switch {
		case err != nil:
			return nil, err
		case kind == frameError:
			return nil, &refusedError{string(data)}
		case kind == frameResponse && string(data) != heartbeat:
			return data, nil
		}
	}
}
