package protocol_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/protocol"
	"github.com/lockstepmq/lockstep/internal/testkit/edgetest"
)

// wholePipe closes both halves at once: a pipe has no others.
type wholePipe struct{ net.Conn }

func (p wholePipe) CloseWrite() error { return p.Close() }

// converse sends bytes as a client would, ends its half, and checks what comes back: whole
// frames of known types, then the end.
func converse(t *testing.T, input []byte) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	o := protocol.DefaultOptions()
	o.MaxMsgSize, o.MaxBodySize = 1000, 10_000
	cluster := edgetest.New()
	defer cluster.Close()
	handler := protocol.New(o, protocol.Backend{Publisher: cluster, Subscribers: cluster, Log: log})
	server, client := net.Pipe()
	served := make(chan struct{})
	go func() { defer close(served); handler.Serve(t.Context(), wholePipe{server}) }()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = client.Write(append([]byte("  V2"), input...)) // the server may have closed
		_, _ = client.Write([]byte("\nEND\n"))                // always an error, unless a body swallowed it
		_ = client.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	}()
	for {
		var h [8]byte
		if _, err := io.ReadFull(client, h[:]); err != nil {
			break
		}
		size, kind := binary.BigEndian.Uint32(h[:]), binary.BigEndian.Uint32(h[4:])
		if size < 4 || size > 1<<20 || kind > 2 {
			t.Fatalf("frame of size %d, type %d", size, kind)
		}
		data := make([]byte, size-4)
		if _, err := io.ReadFull(client, data); err != nil {
			break
		}
		if bytes.Contains(data, []byte(`"snappy":true`)) || bytes.Contains(data, []byte(`"deflate":true`)) {
			_, _ = io.Copy(io.Discard, client) // compressed from here on: not frames
			break
		}
	}
	_ = client.Close()
	<-sent
	<-served
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
	f.Fuzz(converse)
}

// FuzzMultiPut feeds the body of an MPUB any bytes.
func FuzzMultiPut(f *testing.F) {
	for _, seed := range []string{multi("a"), multi("a", "", "c"), multi(), "\x00\x00\x00\x08\x7f\xff\xff\xff\x7f\xff\xff\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) { converse(t, append([]byte("MPUB t\n"), body...)) })
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
		converse(t, append([]byte("IDENTIFY\n"), sized(string(json))...))
	})
}
