package rpc

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// flipper is a path that inverts a bit of the next bytes it carries that are marked; the
// checksums of TCP are right, as when the fault is in a switch or in a card.
type flipper struct{ armed atomic.Bool }

const marked = "the very bytes that were sent"

type flippingConn struct {
	net.Conn
	f *flipper
}

func (c flippingConn) Write(b []byte) (int, error) {
	at := bytes.LastIndex(b, []byte(marked))
	if at < 0 || !c.f.armed.CompareAndSwap(true, false) {
		return c.Conn.Write(b)
	}
	b = bytes.Clone(b)
	b[at+9] ^= 4
	return c.Conn.Write(b)
}

type flippingListener struct {
	net.Listener
	f *flipper
}

func (l flippingListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	return flippingConn{nc, l.f}, err
}

// through lets everything that a broker sends go through f.
func through(f *flipper) func(*Options) {
	return func(o *Options) {
		o.Listen = flippingListener{o.Listen, f}
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			return flippingConn{nc, f}, err
		}
	}
}

// asBuildBefore makes a broker one of a build without checksums of payloads.
func asBuildBefore(b *broker) {
	self := *b.self.Load()
	self.Features &^= featurePayloadCRC
	b.self.Store(&self)
}

// TestFlippedFrameBreaksTheConnection: it is not delivered, nor is any later frame of that
// connection; counted, and logged once; the next connection carries on.
func TestFlippedFrameBreaksTheConnection(t *testing.T) {
	for name, payload := range map[string][]byte{
		"short": []byte(marked), "first piece": append([]byte(marked), make([]byte, pieceBytes)...),
		"second piece": append(make([]byte, pieceBytes+100), marked...),
	} {
		for _, class := range []Class{ClassReplica, ClassForward, ClassRelay, ClassControl, ClassBulk} {
			t.Run(fmt.Sprint(class, " ", name), func(t *testing.T) {
				var f flipper
				a, b := newBroker(t, "a", through(&f)), newBroker(t, "b")
				introduce(a, b)
				waitUp(a, b)
				f.armed.Store(true)
				require.NoError(t, a.Send("b", Frame{class, "h", [][]byte{[]byte("x"), payload}}))
				wait.Until(t, func() bool { return b.Counters().Corrupt == 1 }, "the frame is found corrupt")
				require.Empty(t, framesOf(b.calls()))
				wait.Until(t, func() bool { return a.Counters().Connects == 2 && a.Up("b") }, "the next connection stands")
				require.NoError(t, a.Send("b", Frame{class, "h", [][]byte{payload}}))
				require.Equal(t, payload, b.waitFrames(1)[0].f.Payload)
				wait.Until(t, func() bool { return timesLogged(b, "corrupt frame") > 0 }, "the frame is logged") // after it was counted
				require.Equal(t, 1, timesLogged(b, "corrupt frame"))
				require.EqualValues(t, 1, b.Counters().Corrupt)
			})
		}
	}
}

// TestFlippedCallBreaksTheConnection: the argument, which the peer must not act on, and
// the result, which the caller must not take.
func TestFlippedCallBreaksTheConnection(t *testing.T) {
	echo := func(_ context.Context, _ ident.Node, _ string, req []byte) (any, error) {
		var s string
		err := Unmarshal(req, &s)
		return s, err
	}
	for _, way := range []string{"argument", "result"} {
		t.Run(way, func(t *testing.T) {
			var f flipper
			a, b := newBroker(t, "a"), newBroker(t, "b")
			if way == "argument" {
				require.NoError(t, a.Close())
				a = newBroker(t, "a", through(&f))
			} else {
				require.NoError(t, b.Close())
				b = newBroker(t, "b", through(&f))
			}
			introduce(a, b)
			waitUp(a, b)
			b.answerWith(echo)
			f.armed.Store(true)
			var got string
			require.ErrorIs(t, a.Call(t.Context(), "b", "echo", marked, &got), ErrBroken)
			sees := map[string]*broker{"argument": b, "result": a}[way]
			wait.Until(t, func() bool { return sees.Counters().Corrupt == 1 }, "the call is found corrupt")
			wait.Until(t, func() bool { return a.Call(t.Context(), "b", "echo", marked, &got) == nil }, "the next call is answered")
			require.Equal(t, marked, got)
			wait.Until(t, func() bool { return timesLogged(sees, "corrupt frame") > 0 }, "the call is logged")
			require.Equal(t, 1, timesLogged(sees, "corrupt frame"))
		})
	}
}

func timesLogged(b *broker, text string) (n int) {
	for _, e := range b.logs.AllEntries() {
		if strings.Contains(e.Message, text) {
			n++
		}
	}
	return n
}

// TestPeerOfTheBuildBefore: whichever of the two dials, it is sent frames that it can
// read, and its frames are taken.
func TestPeerOfTheBuildBefore(t *testing.T) {
	a, old := newBroker(t, "a"), newBroker(t, "b")
	asBuildBefore(old)
	introduce(a, old)
	waitUp(a, old)
	payload := bytes.Repeat([]byte(marked), 20_000)
	for _, x := range []struct{ from, to *broker }{{a, old}, {old, a}} {
		require.NoError(t, x.from.Send(x.to.node, Frame{ClassForward, "h", [][]byte{payload}}))
		require.Equal(t, payload, x.to.waitFrames(1)[0].f.Payload)
	}
	require.False(t, a.sender("b").checked())
	require.False(t, old.sender("a").checked())
	c, d := pair(t)
	require.True(t, c.sender("b").checked())
	require.True(t, d.sender("a").checked())
}

// TestEveryFlippedBitIsNoticed: no bit of frames of any kind can change so that another
// frame comes out.
func TestEveryFlippedBitIsNoticed(t *testing.T) {
	frames := func() []*outFrame {
		return []*outFrame{
			frameOf(kindFrame, ClassForward, "head", []byte("pay"), []byte("load")),
			frameOf(kindRequest, ClassControl, "", []byte("argument")),
			frameOf(kindFrame, ClassRelay, "no payload"),
			frameOf(kindHeartbeat, 0, ""),
		}
	}
	sent := checkedWire(t, frames()...)
	read := func(b []byte) (all []arrival, err error) {
		all = []arrival{}
		r := newFrameReader(bytes.NewReader(b))
		for r.checked = true; ; {
			a, err := r.next()
			if err != nil {
				return all, err
			}
			all = append(all, a)
		}
	}
	want, _ := read(sent)
	require.Len(t, want, 4)
	for bit := range 8 * len(sent) {
		b := bytes.Clone(sent)
		b[bit/8] ^= 1 << (bit % 8)
		got, err := read(b)
		require.Less(t, len(got), len(want), "bit %d", bit)
		require.Equal(t, want[:len(got)], got, "bit %d", bit)
		require.True(t, errors.Is(err, errMalformed) || errors.Is(err, errChecksum) || errors.Is(err, io.ErrUnexpectedEOF), "bit %d: %v", bit, err)
	}
}

// TestPayloadWithoutItsChecksum: a peer that promised them sends none.
func TestPayloadWithoutItsChecksum(t *testing.T) {
	r := newFrameReader(bytes.NewReader(wire(t, frameOf(kindFrame, ClassForward, "head", []byte("payload")))))
	r.checked = true
	_, err := r.next()
	require.ErrorIs(t, err, errMalformed)
}

// TestGoldenBytesOfACheckedFrame: the bytes that brokers of other builds read and write.
func TestGoldenBytesOfACheckedFrame(t *testing.T) {
	frame := checkedWire(t, frameOf(kindFrame, ClassForward, "head", []byte("pay"), []byte("load")))
	require.Equal(t, "4c46020102010000"+"04000000"+"07000000"+"07000000"+"7afc0c59"+"7069e3f4"+
		hex.EncodeToString([]byte("headpayload")), hex.EncodeToString(frame))
}
