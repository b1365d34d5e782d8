package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"strconv"
)

// rowDigits is the number of digits of a row's number, which ends the name of its only topic.
// In a row with several topics their own numbers follow, with fewer digits.
const rowDigits = 6

var errNotSubscribed = errors.New("not subscribed")

// leader returns the member that leads a topic. Each member leads a third of the topics of a
// row with several, the first one leads all others. The leader is not i % 3, because bench has
// the consumer of topic i there: so the consumers of each third are at all members.
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

// server accepts connections. It has the node for each leader's topics.
type server [members]*node

// serve accepts connections of an inherited listener until that fails.
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

// read handles the commands of one connection until it ends.
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

// command handles the next command.
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

// take handles a command with a body. It answers directly while no other goroutine writes to
// the connection.
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
