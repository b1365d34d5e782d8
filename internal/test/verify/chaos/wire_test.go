package chaos

import (
	endian "encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/rpc"
)

// wire relays the frames of one broker to another one through the test. The test can hold
// back the replicas' messages, in their order, for any time. All other frames pass, so that
// neither broker judges the other silent.
type wire struct {
	to       *broker
	listener net.Listener
	running  sync.WaitGroup
	mu       sync.Mutex
	open     map[net.Conn]bool
	holds    bool
	held     []parcel
	seen     []message // all that was sent, held or not
}

// parcel is a frame for a connection.
type parcel struct {
	to    net.Conn
	frame []byte
}

// message is what a replica's message on the wire begins with.
type message struct {
	Kind          replica.Kind
	Epoch         ident.Epoch
	Prev, Durable ident.Position
	ConfirmN      uint64
	payload       int // bytes
}

// decode reads the header: numbers, in the order of coordinator/engine/wire.go.
func (m *message) decode(header []byte) error {
	var list [19]uint64 // their count, and they
	for i := range list {
		v, n := endian.Uvarint(header)
		if n <= 0 {
			return io.ErrUnexpectedEOF
		}
		list[i], header = v, header[n:]
	}
	at := func(i int) ident.Position {
		return ident.Position{Offset: ident.Offset(list[i]), Sequence: ident.Sequence(list[i+1])}
	}
	m.Kind, m.Epoch, m.Prev, m.Durable, m.ConfirmN = replica.Kind(list[3]), ident.Epoch(list[5]), at(8), at(13), list[15]
	return nil
}

// wires are those of a cluster, by the sender and the receiver.
type wires map[[2]*broker]*wire

// wired leads the connections between brokers, none of which has been started,
// through the test. Cuts on that lane do not reach them then.
func (c *cluster) wired() wires {
	all := wires{}
	for _, from := range c.brokers {
		rules := "add chain ip chaos nat { type nat hook output priority -100; }\n"
		for _, to := range c.brokers {
			if from != to {
				w := newWire(c, to)
				all[[2]*broker{from, to}] = w
				rules += fmt.Sprintf("add rule ip chaos nat ip daddr %s tcp dport 4153 dnat to %s\n", address(rpcLane, to.number()), w.listener.Addr())
			}
		}
		c.net.run(rules, append(from.host.enter(), "nft", "-f", "-")...)
	}
	return all
}

func newWire(c *cluster, to *broker) *wire {
	const test = 254
	l, err := net.Listen("tcp", address(rpcLane, test)+":0")
	require.NoError(c.t, err)
	w := &wire{to: to, listener: l, open: map[net.Conn]bool{}}
	w.running.Go(w.accept) // ends at close
	c.t.Cleanup(w.close)
	return w
}

func (w *wire) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	for nc := range w.open {
		_ = nc.Close()
	}
	w.mu.Unlock()
	w.running.Wait()
}

func (w *wire) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", address(rpcLane, w.to.number())+":4153")
		if err != nil {
			_ = near.Close() // as if it had ended right away
			continue
		}
		w.mu.Lock()
		w.open[near], w.open[far] = true, true
		w.mu.Unlock()
		w.running.Go(func() { // both end with either half
			defer w.end(near, far)
			_ = w.forth(near, far)
		})
		w.running.Go(func() {
			defer w.end(near, far)
			_, _ = io.Copy(near, far)
		})
	}
}

// end closes both halves of a connection. Bytes held back for it are lost.
func (w *wire) end(halves ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, nc := range halves {
		_ = nc.Close()
		delete(w.open, nc)
	}
}

// forth passes frames on, or holds them (the format: package rpc).
func (w *wire) forth(near, far net.Conn) error {
	const (
		prelude   = 24
		checksum  = 4 // of the payload, before the header
		kindFrame = 1
		checked   = 1 // the flag of a frame with a checksum
	)
	for {
		frame := make([]byte, prelude)
		if _, err := io.ReadFull(near, frame); err != nil {
			return err
		}
		header, payload := endian.LittleEndian.Uint32(frame[8:]), endian.LittleEndian.Uint32(frame[16:])
		start := uint32(prelude) // of the header
		if frame[5]&checked != 0 {
			start += checksum
		}
		frame = append(frame, make([]byte, start-prelude+header+payload)...)
		if _, err := io.ReadFull(near, frame[prelude:]); err != nil {
			return err
		}
		class := rpc.Class(frame[4])
		replicas := frame[3] == kindFrame && (class == rpc.ClassReplica || class == rpc.ClassBulk)
		if err := w.pass(far, frame, frame[start:start+header], int(payload), replicas); err != nil {
			return err
		}
	}
}

func (w *wire) pass(far net.Conn, frame, header []byte, payload int, replicas bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if replicas {
		m := message{payload: payload}
		if err := m.decode(header); err != nil {
			return err
		}
		w.seen = append(w.seen, m)
		if w.holds {
			w.held = append(w.held, parcel{far, frame})
			return nil
		}
	}
	_, err := far.Write(frame)
	return err
}

// hold keeps back what one broker's replicas say to those of others from now on.
func (ws wires) hold(from *broker, to ...*broker) {
	for _, b := range to {
		w := ws[[2]*broker{from, b}]
		w.mu.Lock()
		w.holds = true
		w.mu.Unlock()
	}
}

// release passes on what was held, and what comes.
func (ws wires) release(from *broker, to ...*broker) {
	for _, b := range to {
		w := ws[[2]*broker{from, b}]
		w.mu.Lock()
		for _, p := range w.held {
			_, _ = p.to.Write(p.frame) // a connection that has ended loses it
		}
		w.holds, w.held = false, nil
		w.mu.Unlock()
	}
}

// sent lists the messages of one broker's replica to another's, held or not.
func (ws wires) sent(from, to *broker) []message {
	w := ws[[2]*broker{from, to}]
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}
