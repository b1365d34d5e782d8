package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"strconv"
)

// rowDigits is how many digits bench gives to the number of a row, with which
// the name of its only topic ends. Where it has several, their own numbers come
// behind, with fewer digits.
const rowDigits = 6

var errNotSubscribed = errors.New("not subscribed")

// leader is the member that leads a topic: each leads a third of those of a row
// with several, the first one all others. It is not i % 3, which is where bench
// has the consumer of topic i: so those of each third are at all members.
func leader(topic []byte) int {
	number := topic[bytes.LastIndexByte(topic, '_')+1:]
	if len(number) >= rowDigits {
		return 0
	}
	i, err := strconv.ParseUint(string(number), 10, 32)
	if err != nil {
		return 0
	}
	return int(i / members % members)
}

// server takes connections. It has the node for each leader's topics.
type server [members]*node

// serve takes those of an inherited listener until that fails.
func (s server) serve(fd uintptr) error {
	l, err := net.FileListener(os.NewFile(fd, ""))
	if err != nil {
		return err
	}
	defer l.Close()
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go s.read(newPeer(c)) // ends with the connection
	}
}

// read takes the commands of one connection until it ends.
func (s server) read(p *peer) {
	defer p.Close()
	defer func() {
		for p.at != nil && p.at.unsubscribe(p) {
		}
	}()
	_, err := p.r.Discard(len(magic))
	for err == nil {
		err = s.command(p)
	}
}

// command does the next one.
func (s server) command(p *peer) error {
	line, verb, err := p.line()
	if err != nil {
		return err
	}
	if p.at == nil && (verb == "FIN" || verb == "CLS") {
		return errNotSubscribed
	}
	switch verb {
	case "SUB":
		p.at = s[leader(topic(line))]
		return p.at.subscribe(p)
	case "CLS":
		p.at.unsubscribe(p)
		return nil
	case "FIN":
		return p.at.finish(p.burst(line))
	case "IDENTIFY", "PUB", "MPUB", "FINISHED":
		return s[leader(topic(line))].take(p, verb)
	default:
		return nil
	}
}

// take takes a command with something behind its line. It answers itself as long
// as nobody else knows of the connection.
func (n *node) take(p *peer, verb string) error {
	m, err := p.sized()
	switch {
	case err != nil:
	case verb == "IDENTIFY":
		_, err = p.Write([]byte(ok))
	case verb == "PUB":
		n.puts <- put{from: p, messages: m, n: 1}
	case verb == "MPUB" && len(m) >= 8:
		n.puts <- put{from: p, messages: m[8:], n: int(binary.BigEndian.Uint32(m[4:]))}
	case verb == "FINISHED":
		n.puts <- put{finished: m[4:]}
	}
	return err
}
