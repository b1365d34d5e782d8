package tcp_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/internal/frontend/tcp"
	"github.com/lockstepmq/lockstep/internal/test/testkit/edgetest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker is a handler on its own listener, with a fake cluster.
type broker struct {
	t       testing.TB
	cluster *edgetest.Cluster
	handler *tcp.Handler
	network string
	address string
	pipe    func() net.Conn // instead of an address
}

type setup struct {
	options tcp.Options
	backend tcp.Backend
	unix    bool
	pipe    bool                    // no sockets: for tests with synctest's clock
	wrap    func(net.Conn) net.Conn // the broker's end of a pipe; nil = as it is
}

func newBroker(t testing.TB, change ...func(*setup)) *broker {
	t.Helper()
	log := logrus.New()
	log.SetOutput(io.Discard)
	cluster := edgetest.New()
	s := setup{
		options: tcp.DefaultOptions(),
		backend: tcp.Backend{Publisher: cluster, Subscribers: cluster, Log: log},
	}
	s.options.LoginTimeout = wait.Limit
	for _, f := range change {
		f(&s)
	}
	cluster.MaxConsumers = s.options.MaxChannelConsumers
	cluster.MaxMsgTimeout = s.options.MaxMsgTimeout
	b := &broker{t: t, cluster: cluster, handler: tcp.New(s.options, s.backend)}
	if s.pipe {
		b.servePipes(s.wrap)
	} else {
		b.serveSocket(s.unix)
	}
	return b
}

// serve runs the handler on the given connections until the end of the test.
func (b *broker) serve(stopAccepting func()) (handle func(net.Conn), started *sync.WaitGroup) {
	ctx, cancel := context.WithCancel(context.Background())
	wg := &sync.WaitGroup{}
	b.t.Cleanup(func() {
		stopAccepting()
		cancel()
		wg.Wait()
		b.cluster.Close()
	})
	return func(conn net.Conn) { wg.Go(func() { b.handler.Serve(ctx, conn) }) }, wg
}

func (b *broker) servePipes(wrap func(net.Conn) net.Conn) {
	handle, _ := b.serve(func() {})
	b.pipe = func() net.Conn {
		server, client := net.Pipe()
		if wrap != nil {
			server = wrap(server)
		}
		handle(server)
		return client
	}
}

func (b *broker) serveSocket(unix bool) {
	network, address := "tcp", "127.0.0.1:0"
	if unix {
		network, address = "unix", filepath.Join(b.t.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	require.NoError(b.t, err)
	b.network, b.address = network, l.Addr().String()
	handle, wg := b.serve(func() { _ = l.Close() })
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			handle(conn)
		}
	})
}

// client speaks V2 and fails the test at any unexpected frame.
type client struct {
	t    testing.TB
	conn net.Conn
	r    io.Reader
	w    io.Writer
}

func (b *broker) dial() *client { return b.dialMagic("  V2") }

func (b *broker) publishOne(topic, body string) { b.dial().publish(topic, body) }

func (b *broker) connect() net.Conn {
	b.t.Helper()
	if b.pipe != nil {
		return b.pipe()
	}
	conn, err := net.Dial(b.network, b.address)
	require.NoError(b.t, err)
	return conn
}

func (b *broker) dialMagic(magic string) *client {
	b.t.Helper()
	conn := b.connect()
	b.t.Cleanup(func() { _ = conn.Close() })
	require.NoError(b.t, conn.SetDeadline(time.Now().Add(wait.Limit)))
	c := &client{t: b.t, conn: conn, r: bufio.NewReader(conn), w: conn}
	c.send(magic)
	return c
}

func (c *client) send(s string) {
	c.t.Helper()
	_, err := io.WriteString(c.w, s)
	require.NoError(c.t, err)
	if f, ok := c.w.(interface{ Flush() error }); ok {
		require.NoError(c.t, f.Flush())
	}
}

// sized is a body with its length before it.
func sized(body string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + body
}

// multi is the body of an MPUB.
func multi(bodies ...string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(bodies)))
	for _, body := range bodies {
		b = append(b, sized(body)...)
	}
	return sized(string(b))
}

type frame struct {
	kind uint32
	data string
}

// next reads one frame, heartbeats included.
func (c *client) next() (frame, error) {
	var h [8]byte
	if _, err := io.ReadFull(c.r, h[:]); err != nil {
		return frame{}, err
	}
	data := make([]byte, binary.BigEndian.Uint32(h[:])-4)
	_, err := io.ReadFull(c.r, data)
	return frame{binary.BigEndian.Uint32(h[4:]), string(data)}, err
}

func (c *client) read() frame {
	c.t.Helper()
	f, err := c.next()
	require.NoError(c.t, err)
	return f
}

func (c *client) response(want string) {
	c.t.Helper()
	require.Equal(c.t, frame{0, want}, c.read())
}

func (c *client) error(want string) {
	c.t.Helper()
	require.Equal(c.t, frame{1, want}, c.read())
}

// fatal expects an error and the end of the connection.
func (c *client) fatal(want string) {
	c.t.Helper()
	c.error(want)
	c.closed()
}

// closed expects the end of the connection without another frame.
func (c *client) closed() {
	c.t.Helper()
	f, err := c.next()
	require.ErrorIs(c.t, err, io.EOF, "got %v", f)
}

type message struct {
	timeNS   int64
	attempts uint16
	id, body string
}

func (c *client) message() message {
	c.t.Helper()
	f := c.read()
	require.Equal(c.t, uint32(2), f.kind, "%q", f.data)
	b := []byte(f.data)
	return message{
		timeNS: int64(binary.BigEndian.Uint64(b)), attempts: binary.BigEndian.Uint16(b[8:]),
		id: string(b[10:26]), body: string(b[26:]),
	}
}

// identify sends IDENTIFY and returns the reply.
func (c *client) identify(json string) string {
	c.t.Helper()
	c.send("IDENTIFY\n" + sized(json))
	f := c.read()
	require.Equal(c.t, uint32(0), f.kind, "%s", f.data)
	return f.data
}

func (c *client) subscribe(topic, channel string, ready string) {
	c.t.Helper()
	c.send("SUB " + topic + " " + channel + "\n")
	c.response("OK")
	c.send("RDY " + ready + "\n")
}

func (c *client) publish(topic string, bodies ...string) {
	c.t.Helper()
	for _, body := range bodies {
		c.send("PUB " + topic + "\n" + sized(body))
		c.response("OK")
	}
}

// quiet publishes and expects its answer as the next frame: an unwanted message would have come before it.
func (c *client) quiet() {
	c.t.Helper()
	c.send("PUB quiet\n" + sized("q"))
	c.response("OK")
}

func repeat(s string, n int) string { return strings.Repeat(s, n) }

// pair returns both ends of a TCP connection that no handler serves.
func (b *broker) pair() (server, client net.Conn) {
	b.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b.t, err)
	defer func() { _ = l.Close() }()
	client, err = net.Dial("tcp", l.Addr().String())
	require.NoError(b.t, err)
	server, err = l.Accept()
	require.NoError(b.t, err)
	return server, client
}
