package rpc

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	nonceBytes          = 32
	handshakeFrameBytes = 4 << 10
	// paddingBytes make a hello longer than a packet, so that the handshake fails on a path that loses only large
	// packets. Otherwise heartbeats would keep the peer up while no append arrives.
	paddingBytes = 2 << 10
)

// errRefused means that one side ended the handshake with a reason.
var errRefused = errors.New("rpc: handshake refused")

// helloHeader begins a handshake. On the wire, by position: append only.
type helloHeader struct {
	Hello   Hello
	To      ident.Node // the node that is dialled
	Nonce   Bytes
	Padding Bytes
}

// handshake is one side of one handshake.
type handshake struct {
	nc    net.Conn
	in    *frameReader
	self  Hello
	token []byte
	// certified checks that the other side's certificate belongs to a node; without TLS it accepts all.
	certified func(ident.Node) error
}

// dial is the dialler's side; to is the dialled node.
func (h handshake) dial(to ident.Node) (Hello, error) {
	mine, err := h.sendHello(to)
	if err != nil {
		return Hello{}, err
	}
	peer, theirs, err := h.readHello()
	if err != nil {
		return Hello{}, err
	}
	err = compatible(h.self, peer.Hello)
	if err == nil && peer.Hello.Node != to {
		err = fmt.Errorf("%w: dialled %q, found %q", errRefused, to, peer.Hello.Node)
	}
	if err == nil {
		err = h.certified(to)
	}
	if err != nil {
		return Hello{}, h.refuse(err)
	}
	if err := h.sendProof("dialler", mine, theirs); err != nil {
		return Hello{}, err
	}
	return peer.Hello, h.readProof("acceptor", mine, theirs)
}

// accept is the acceptor's side; admit may refuse a peer that has proved its identity.
func (h handshake) accept(admit func(Hello) error) (Hello, error) {
	peer, theirs, err := h.readHello()
	if err != nil {
		return Hello{}, err
	}
	err = compatible(h.self, peer.Hello)
	if err == nil && peer.To != h.self.Node {
		err = fmt.Errorf("%w: this is %q, not %q", errRefused, h.self.Node, peer.To)
	}
	if err == nil {
		err = h.certified(peer.Hello.Node)
	}
	if err != nil {
		return peer.Hello, h.refuse(err)
	}
	mine, err := h.sendHello("")
	if err != nil {
		return peer.Hello, err
	}
	if err := h.readProof("dialler", theirs, mine); err != nil {
		return peer.Hello, err
	}
	if err := admit(peer.Hello); err != nil {
		return peer.Hello, h.refuse(fmt.Errorf("%w: %w", errRefused, err))
	}
	return peer.Hello, h.sendProof("acceptor", theirs, mine)
}

// compatible checks that the clusters are equal, the versions differ by at most 1, and the peer is registered.
func compatible(self, peer Hello) error {
	apart := int(self.Version) - int(peer.Version)
	switch {
	case peer.Cluster != self.Cluster:
		return fmt.Errorf("%w: cluster %q against %q", errRefused, clip(peer.Cluster), self.Cluster)
	case apart < -1 || apart > 1:
		return fmt.Errorf("%w: protocol version %d against %d", errRefused, peer.Version, self.Version)
	case peer.Incarnation == 0:
		return fmt.Errorf("%w: broker %q is not registered (incarnation 0)", errRefused, clip(string(peer.Node)))
	}
	return nil
}

// sendHello returns the header that it sent: the proofs of both sides cover it.
func (h handshake) sendHello(to ident.Node) ([]byte, error) {
	nonce := make([]byte, nonceBytes)
	_, _ = rand.Read(nonce) // never fails: crypto/rand ends the process instead
	header, err := Marshal(helloHeader{h.self, to, nonce, make([]byte, paddingBytes)})
	if err != nil {
		return nil, err
	}
	return header, h.send(kindHello, header)
}

func (h handshake) readHello() (helloHeader, []byte, error) {
	var hello helloHeader
	header, err := h.read(kindHello)
	if err != nil {
		return hello, nil, err
	}
	if err := Unmarshal(header, &hello); err != nil {
		return hello, nil, fmt.Errorf("%w: hello: %w", errMalformed, err)
	}
	if len(hello.Nonce) != nonceBytes {
		return hello, nil, malformed("nonce of %d bytes", len(hello.Nonce))
	}
	return hello, header, nil
}

func (h handshake) sendProof(side string, dialler, acceptor []byte) error {
	proof, err := h.proof(side, dialler, acceptor)
	if err != nil {
		return err
	}
	return h.send(kindProof, proof)
}

func (h handshake) readProof(side string, dialler, acceptor []byte) error {
	got, err := h.read(kindProof)
	if err != nil {
		return err
	}
	want, err := h.proof(side, dialler, acceptor)
	if err != nil {
		return err
	}
	if !hmac.Equal(got, want) {
		return h.refuse(fmt.Errorf("%w: cluster token differs", errRefused))
	}
	return nil
}

// proof binds the token to this conversation and, under TLS, to its session, so that a man in the middle cannot relay
// it.
func (h handshake) proof(side string, dialler, acceptor []byte) ([]byte, error) {
	mac := hmac.New(sha256.New, h.token)
	for _, part := range [][]byte{[]byte("lockstep rpc " + side), dialler, acceptor} {
		digest := sha256.Sum256(part) // of a fixed length, so that the parts have clear boundaries
		mac.Write(digest[:])
	}
	if c, ok := h.nc.(*tls.Conn); ok {
		state := c.ConnectionState()
		bound, err := state.ExportKeyingMaterial("EXPORTER-lockstep-rpc", nil, sha256.Size)
		if err != nil {
			return nil, fmt.Errorf("rpc: bind proof to TLS session: %w", err)
		}
		mac.Write(bound)
	}
	return mac.Sum(nil), nil
}

// refuse sends the reason to the other side, if the connection accepts it, and returns it.
func (h handshake) refuse(why error) error {
	if header, err := Marshal(clip(why.Error())); err == nil {
		_ = h.send(kindRefusal, header) // the connection closes either way
	}
	return why
}

func (h handshake) send(k kind, header []byte) error {
	_, err := h.nc.Write(appendPiece(nil, prelude{kind: k}, header))
	return err
}

// read returns the header of a frame that must be of kind want.
func (h handshake) read(want kind) ([]byte, error) {
	a, err := h.in.next()
	if err != nil {
		return nil, err
	}
	if a.kind == kindRefusal {
		var text string
		if err := Unmarshal(a.header, &text); err != nil {
			return nil, malformed("refusal: %v", err)
		}
		return nil, fmt.Errorf("%w by the other side: %q", errRefused, clip(text))
	}
	if a.kind != want {
		return nil, malformed("kind %d in the handshake where %d is due", a.kind, want)
	}
	return a.header, nil
}
