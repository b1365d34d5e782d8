package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"sync"
)

const (
	magic  = "  V2"
	ok     = "\x00\x00\x00\x06\x00\x00\x00\x00OK" // the answer to every command
	buffer = 32 << 10

	messageFrame = 2
	beforeID     = 18 // length, type of frame, time, attempts
	idLength     = 16

	fin       = "FIN "
	finLength = len(fin) + idLength + 1
)

// peer is a connection that publishes or subscribes. Its goroutine reads. The loops of the
// nodes write to w if it publishes; the holder of the subscribers' lock writes if it
// subscribes.
type peer struct {
	net.Conn
	r    *bufio.Reader
	w    *bufio.Writer
	at   *node // where it subscribes, or nil; only its goroutine uses it
	fins []byte

	answering sync.Mutex // the loops hold it while they write
}

func newPeer(c net.Conn) *peer {
	return &peer{Conn: c, r: bufio.NewReaderSize(c, buffer), w: bufio.NewWriterSize(c, buffer)}
}

// line reads one line and returns it and its first word; the line is valid until the next
// read.
func (p *peer) line() (line []byte, verb string, err error) {
	if line, err = p.r.ReadSlice('\n'); err != nil {
		return nil, "", err
	}
	word, _, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	return line, string(word), nil
}

// topic returns the second word of a line.
func topic(line []byte) []byte {
	_, rest, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
	name, _, _ := bytes.Cut(rest, []byte(" "))
	return name
}

// burst returns a FIN line together with the FINs behind it that are already in the buffer;
// valid until the next read.
func (p *peer) burst(line []byte) []byte {
	p.fins = append(p.fins[:0], line...)
	for p.r.Buffered() >= finLength {
		next, _ := p.r.Peek(finLength)
		if string(next[:len(fin)]) != fin {
			break
		}
		p.fins = append(p.fins, next...)
		_, _ = p.r.Discard(finLength)
	}
	return p.fins
}

// sized reads a length and that many bytes.
func (p *peer) sized() ([]byte, error) {
	head, err := p.r.Peek(4)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 4+int(binary.BigEndian.Uint32(head)))
	_, err = io.ReadFull(p.r, b)
	return b, err
}

// another reports whether the buffer has a complete length-prefixed item.
func (p *peer) another() bool {
	if p.r.Buffered() < 4 {
		return false
	}
	head, _ := p.r.Peek(4)
	return p.r.Buffered()-4 >= int(binary.BigEndian.Uint32(head))
}

// answer writes one OK.
func (p *peer) answer() {
	p.answering.Lock()
	defer p.answering.Unlock()
	_, _ = p.w.WriteString(ok)
}

// flushAnswers sends the answers, unless the peer has disconnected.
func (p *peer) flushAnswers() {
	p.answering.Lock()
	defer p.answering.Unlock()
	_ = p.w.Flush()
}

// message writes one delivery. Ids are digits, because FINs, which contain them, are lines.
func (p *peer) message(id uint64, body []byte) {
	var head [beforeID + idLength]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(head)-4+len(body)))
	binary.BigEndian.PutUint32(head[4:], messageFrame)
	var number [idLength / 2]byte
	binary.BigEndian.PutUint64(number[:], id)
	hex.Encode(head[beforeID:], number[:])
	_, _ = p.w.Write(head[:])
	_, _ = p.w.Write(body)
}

// link passes groups to another member, one at a time.
type link struct {
	net.Conn
	b []byte
}

func dial(address string) (*link, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	l := &link{Conn: c}
	_, err = c.Write([]byte(magic))
	return l, err
}

// send passes finishes, which have no answer, and messages.
func (l *link) send(g *group) error {
	l.b = l.b[:0]
	if len(g.finished) > 0 {
		l.b = append(l.b, "FINISHED\n"...)
		l.b = binary.BigEndian.AppendUint32(l.b, uint32(len(g.finished)))
		l.b = append(l.b, g.finished...)
	}
	if g.n > 0 {
		l.b = append(l.b, "MPUB chain\n"...)
		l.b = binary.BigEndian.AppendUint32(l.b, uint32(4+len(g.messages)))
		l.b = binary.BigEndian.AppendUint32(l.b, uint32(g.n))
		l.b = append(l.b, g.messages...)
	}
	_, err := l.Write(l.b)
	return err
}

func (l *link) await() error {
	var b [len(ok)]byte
	if _, err := io.ReadFull(l, b[:]); err != nil {
		return err
	}
	if string(b[:]) != ok {
		return errors.New("an answer other than OK")
	}
	return nil
}
