package tcp_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/frontend/tcp"
	"github.com/lockstepmq/lockstep/internal/test/testkit/edgetest"
)

// memoryConn is a client that has sent all its bytes and closed its half: no read waits, so
// that a conversation takes microseconds.
type memoryConn struct {
	in     bytes.Reader
	remote net.TCPAddr
	mu     struct {
		sync.Mutex
		out bytes.Buffer
	}
}

func (m *memoryConn) Read(p []byte) (int, error) { return m.in.Read(p) }

func (m *memoryConn) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.out.Write(p)
}

func (m *memoryConn) Close() error                     { return nil }
func (m *memoryConn) CloseWrite() error                { return nil }
func (m *memoryConn) LocalAddr() net.Addr              { return &m.remote }
func (m *memoryConn) RemoteAddr() net.Addr             { return &m.remote }
func (m *memoryConn) SetDeadline(time.Time) error      { return nil }
func (m *memoryConn) SetReadDeadline(time.Time) error  { return nil }
func (m *memoryConn) SetWriteDeadline(time.Time) error { return nil }

// addresses numbers the clients: each comes from an address of its own, so that the delay
// after bad logins holds none of them.
var addresses atomic.Uint32

func silentLog() *logrus.Logger {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return log
}

// converse sends bytes as a client would, ends its half, and checks the answers: whole frames
// of known types, then the end. It returns the broker's side.
func converse(t *testing.T, g *guard.Guard, input []byte) *edgetest.Cluster {
	o := tcp.DefaultOptions()
	o.MaxMsgSize, o.MaxBodySize = 1000, 10_000
	cluster := edgetest.New()
	handler := tcp.New(o, tcp.Backend{Publisher: cluster, Subscribers: cluster, Guard: g, Log: silentLog()})
	conn := &memoryConn{remote: net.TCPAddr{IP: binary.BigEndian.AppendUint32(nil, 10<<24|addresses.Add(1)&0xffffff), Port: 1}}
	conn.in.Reset(input)
	handler.Serve(context.Background(), conn)
	cluster.Close()
	for out := conn.mu.out.Bytes(); len(out) > 0; {
		require.GreaterOrEqual(t, len(out), 8, "part of a frame")
		size, kind := binary.BigEndian.Uint32(out), binary.BigEndian.Uint32(out[4:])
		if size < 4 || size > 1<<20 || kind > 2 || int(size)+4 > len(out) {
			t.Fatalf("frame of size %d, type %d, of %d bytes", size, kind, len(out))
		}
		data := out[8 : 4+size]
		out = out[4+size:]
		if bytes.Contains(data, []byte(`"snappy":true`)) || bytes.Contains(data, []byte(`"deflate":true`)) {
			break // compressed from here on: not frames
		}
	}
	return cluster
}

// speak is converse behind the magic, by a client that may do everything. The line at the end
// is always an error, unless a body swallowed it.
func speak(t *testing.T, input []byte) {
	converse(t, nil, fmt.Appendf(nil, "  V2%s\nEND\n", input))
}

// FuzzCommands feeds the parser any bytes.
func FuzzCommands(f *testing.F) {
	for _, seed := range []string{
		"PUB t\n" + sized("m"), "MPUB t\n" + multi("a", "b"), "DPUB t 10\n" + sized("m"),
		"SUB t c\nRDY 1\nPUB t\n" + sized("m") + "FIN 0000000000000001\nREQ 0000000000000001 5\nTOUCH 0000000000000001\nCLS\n",
		"IDENTIFY\n" + sized(`{"heartbeat_interval":-1}`) + "NOP\n\r\n", "AUTH\n" + sized("x"),
		"PUB t\n\xff\xff\xff\xff", "PUB t\n\x7f\xff\xff\xff", "SUB  \n", "\n\n", repeat("x", 17000),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(speak)
}

// FuzzMultiPut feeds the body of an MPUB any bytes.
func FuzzMultiPut(f *testing.F) {
	for _, seed := range []string{multi("a"), multi("a", "", "c"), multi(), "\x00\x00\x00\x08\x7f\xff\xff\xff\x7f\xff\xff\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) { speak(t, append([]byte("MPUB t\n"), body...)) })
}

// FuzzIdentify feeds IDENTIFY any JSON.
func FuzzIdentify(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, `null`, `{"feature_negotiation":true,"snappy":true}`, `{"feature_negotiation":true,"deflate":true,"deflate_level":99}`,
		`{"output_buffer_size":64,"output_buffer_timeout":-1,"sample_rate":99,"msg_timeout":1000}`, `{"heartbeat_interval":1e3}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, json []byte) {
		speak(t, append([]byte("IDENTIFY\n"), sized(string(json))...))
	})
}

// FuzzStranger is a client without credentials at a broker with users: whatever bytes it
// sends from the first on, nothing is stored, nothing is subscribed, and no topic is made.
func FuzzStranger(f *testing.F) {
	g := tcp.ClosedGuard(f)
	for _, seed := range []string{
		"", "  V1", "GET / HTTP/1.1\r\n\r\n", "  V2", "  V2NOP\n", "  V2AUTH\n" + sized("root.x"), "  V2AUTH\n" + sized("anonymous") + "PUB t\n" + sized("m"),
		"  V2AUTH\n" + sized("certificate") + "SUB t c\nRDY 1\n", "  V2PUB t\n" + sized("m"), "  V2MPUB t\n" + multi("a", "b"), "  V2DPUB t 10\n" + sized("m"),
		"  V2PUB_EXT t\n" + sized("\x00\x02{}m"), "  V2SUB_ORDERED t c\n", "  V2SUB_ADVANCED t c\n", "  V2IDENTIFY\n" + sized(`{"feature_negotiation":true}`) + "SUB t c\n",
		"  V2IDENTIFY\n" + sized(`{"feature_negotiation":true,"deflate":true}`), "  V2FIN 0000000000000001\n", "  V2CLS\n", "  V2RDY 1\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		cluster := converse(t, g, input)
		require.Empty(t, cluster.Puts(), "a stranger's message is stored")
		require.Empty(t, cluster.Topics("", "", true), "a stranger made a topic, or subscribes")
	})
}
