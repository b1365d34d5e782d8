package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	magic  = "  V2"
	ok     = "\x00\x00\x00\x06\x00\x00\x00\x00OK" // the answer to everything
	buffer = 32 << 10

	messageFrame  = 2
	messageHeader = 26 // time, attempts, id
)

// peer is a connection that puts or subscribes. Its goroutine reads, the node's
// loop writes to w.
type peer struct {
	net.Conn
	r *bufio.Reader
	w *bufio.Writer
}

func newPeer(c net.Conn) *peer {
	return &peer{c, bufio.NewReaderSize(c, buffer), bufio.NewWriterSize(c, buffer)}
}

// verb reads a line and gives its first word.
func (p *peer) verb() (string, error) {
	line, err := p.r.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	verb, _, _ := strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
	return verb, nil
}

// sized reads what has its length before it, and that.
func (p *peer) sized() ([]byte, error) {
	head, err := p.r.Peek(4)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 4+int(binary.BigEndian.Uint32(head)))
	_, err = io.ReadFull(p.r, b)
	return b, err
}

// message writes one delivery.
func (p *peer) message(body []byte) {
	var head [8 + messageHeader]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(head)-4+len(body)))
	binary.BigEndian.PutUint32(head[4:], messageFrame)
	_, _ = p.w.Write(head[:])
	_, _ = p.w.Write(body)
}

// link passes groups on to another member, one at a time.
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

func (l *link) send(messages []byte, count int) error {
	l.b = append(l.b[:0], "MPUB chain\n"...)
	l.b = binary.BigEndian.AppendUint32(l.b, uint32(4+len(messages)))
	l.b = binary.BigEndian.AppendUint32(l.b, uint32(count))
	l.b = append(l.b, messages...)
	_, err := l.Write(l.b)
	return err
}

func (l *link) await() error {
	var b [len(ok)]byte
	if _, err := io.ReadFull(l, b[:]); err != nil {
		return err
	}
	if string(b[:]) != ok {
		return errors.New("another answer than OK")
	}
	return nil
}

// log is a file of zeroes that is written round and round.
type log struct {
	file *os.File
	sync bool
	at   int64
}

func (l *log) append(b []byte) error {
	if l.at+int64(len(b)) > fileBytes {
		l.at = 0
	}
	if _, err := l.file.WriteAt(b, l.at); err != nil {
		return err
	}
	l.at += int64(len(b))
	if !l.sync {
		return nil
	}
	return unix.Fdatasync(int(l.file.Fd()))
}
