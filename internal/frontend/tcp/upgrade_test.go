package tcp_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// A client may predict the reply to its IDENTIFY and send the upgraded stream without waiting for it. The broker then
// reads both at once: the bytes behind the IDENTIFY belong to the upgraded stream.

// opening returns the first bytes of a connection.
func opening(identify string) string { return "  V2" + "IDENTIFY\n" + sized(identify) }

// hasty is a client's socket that sends its first write behind an IDENTIFY, in one packet. It
// removes the answer to the IDENTIFY from the bytes that it reads.
type hasty struct {
	net.Conn
	t        testing.TB
	identify string
	sent     bool
	answered bool
}

func (h *hasty) Write(p []byte) (int, error) {
	if h.sent {
		return h.Conn.Write(p)
	}
	h.sent = true
	if _, err := h.Conn.Write(append([]byte(opening(h.identify)), p...)); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (h *hasty) Read(p []byte) (int, error) {
	if !h.answered {
		h.awaitAnswer()
	}
	return h.Conn.Read(p)
}

// awaitAnswer returns when the broker has read the first packet: the broker answers before it reads on.
func (h *hasty) awaitAnswer() {
	h.answered = true
	require.Contains(h.t, (&client{t: h.t, r: h.Conn}).read().data, `"max_rdy_count"`)
}

// hurry connects and sends nothing yet.
func (b *broker) hurry(identify string) *hasty {
	conn := b.connect()
	b.t.Cleanup(func() { _ = conn.Close() })
	require.NoError(b.t, conn.SetDeadline(time.Now().Add(wait.Limit)))
	return &hasty{Conn: conn, t: b.t, identify: identify}
}

const requestTLS = `{"feature_negotiation":true,"tls_v1":true}`

// TestTLSBeginsBehindIdentify: the broker reads the beginning of the handshake together with the IDENTIFY.
func TestTLSBeginsBehindIdentify(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		t.Run(tls.VersionName(version), func(t *testing.T) {
			h := newBroker(t, withTLS(t, nil)).hurry(requestTLS)
			secure := tls.Client(h, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
			require.NoError(t, secure.Handshake())
			c := &client{t: t, conn: h, r: bufio.NewReader(secure), w: secure}
			c.response("OK")
			c.exercise()
		})
	}
}

// TestClearTextBehindIdentifyIsNoCommand: bytes behind an IDENTIFY that requests TLS are the
// beginning of the handshake. An attacker in the middle may have inserted them: the broker
// neither runs them as a command nor skips them.
func TestClearTextBehindIdentifyIsNoCommand(t *testing.T) {
	b := newBroker(t, withTLS(t, nil))
	h := b.hurry(requestTLS)
	_, err := io.WriteString(h, "PUB t\n"+sized("m"))
	require.NoError(t, err)
	h.awaitAnswer()
	require.Error(t, tls.Client(h, &tls.Config{InsecureSkipVerify: true}).Handshake())
	require.Empty(t, b.cluster.Puts())
}

// TestCompressionBeginsBehindIdentify: the broker reads a compressed command, or the beginning
// of one, together with the IDENTIFY.
func TestCompressionBeginsBehindIdentify(t *testing.T) {
	for _, how := range []string{"snappy", "deflate"} {
		for name, early := range map[string]func(whole int) int{
			"a byte":    func(int) int { return 1 },
			"a part":    func(whole int) int { return whole / 2 },
			"a command": func(whole int) int { return whole },
		} {
			t.Run(how+" "+name, func(t *testing.T) {
				h := newBroker(t).hurry(`{"feature_negotiation":true,"` + how + `":true}`)
				var stream bytes.Buffer
				c := &client{t: t, conn: h, w: pack(t, how, &stream), r: unpack(how, bufio.NewReader(h))}
				send := func(bytes []byte) {
					_, err := h.Write(bytes)
					require.NoError(t, err)
				}
				c.send("PUB t\n" + sized("early"))
				whole := stream.Bytes()
				send(whole[:early(len(whole))])
				c.response("OK") // compression begins
				send(whole[early(len(whole)):])
				c.response("OK")
				stream.Reset()
				c.send("SUB t ch\nRDY 1\n")
				send(stream.Bytes())
				c.response("OK")
				require.Equal(t, "early", c.message().body)
			})
		}
	}
}
