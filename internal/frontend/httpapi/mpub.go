package httpapi

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"

	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// A decoder decodes the body of POST /mpub into a draft of one put: one message a line, or a number of
// length-prefixed messages; and the records of POST /v1/topic/append.
//
// It checks sizes and publishes nothing; the answers to its errors are those of internal/frontend/httpapi.
//
// Invariants: a body needs at most the memory that its limits allow, whatever sizes it announces; empty lines are no
// messages; a body of length-prefixed messages without a header and a deadline is read directly into the batch.
//
// It has no goroutines; a decoder belongs to one request.

// The errors of a body; each text is the message of the answer.
var (
	ErrBodyTooBig = errors.New("BODY_TOO_BIG")
	ErrMsgTooBig  = errors.New("MSG_TOO_BIG")
	ErrBadBody    = errors.New("BAD_BODY")
	ErrBadMessage = errors.New("BAD_MESSAGE")
	// ErrEmpty means that a body has no message, although it must have one.
	ErrEmpty = errors.New("MSG_EMPTY")
	// ErrRead means that the connection failed.
	ErrRead = errors.New("INTERNAL_ERROR")
)

// MPubOptions are the limits, and the parts of a put that every message has.
type MPubOptions struct {
	MaxMsgSize, MaxBodySize int64
	DeliverAt               int64          // unix ns; 0: at once. Of Records: the latest that is not special
	Header                  []byte         // nil: none
	Identity                queue.Identity // of the put; 0: none
}

// decoder reads one body.
type decoder struct {
	MPubOptions
	in      *bufio.Reader
	draft   *queue.DraftBuilder
	read    int64
	scratch []byte // of the current line
}

// Lines adds one message for each line of the body.
func Lines(body io.Reader, draft *queue.DraftBuilder, o MPubOptions) error {
	d := decoder{MPubOptions: o, in: bufio.NewReader(body), draft: draft}
	return d.lines()
}

// Binary adds length-prefixed messages, behind their number.
func Binary(body io.Reader, draft *queue.DraftBuilder, o MPubOptions) error {
	d := decoder{MPubOptions: o, in: bufio.NewReader(body), draft: draft}
	return d.binary()
}

// lines reads one message per line; empty lines are skipped.
func (m *decoder) lines() error {
	for {
		line, err := m.line()
		if err != nil && err != io.EOF {
			return err
		}
		if len(line) > 0 {
			if addErr := m.add(line); addErr != nil {
				return addErr
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

// line reads one line without its newline. It stops at the first limit, so that an endless
// line uses bounded memory.
func (m *decoder) line() ([]byte, error) {
	line := m.scratch[:0]
	for {
		part, err := m.in.ReadSlice('\n')
		line = append(line, part...)
		m.read += int64(len(part))
		if m.read > m.MaxBodySize {
			return nil, ErrBodyTooBig
		}
		m.scratch = line
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			return line, io.EOF
		}
		return nil, ErrRead
	}
}

// MaxDraft bounds the batch in bytes. It leaves room for the overhead of one message.
const MaxDraft = queue.MaxBatchBytes - 64

func (m *decoder) add(body []byte) error {
	if int64(len(body)) > m.MaxMsgSize {
		return ErrMsgTooBig
	}
	if m.draft.Size()+len(m.Header)+len(body) > MaxDraft {
		return ErrBodyTooBig
	}
	x := queue.Message{Header: m.Header, Body: body, DeliverAt: m.DeliverAt}
	if m.Identity != (queue.Identity{}) {
		x.Identity = m.Identity.Part(m.draft.Count())
	}
	return m.draft.AddMessage(x)
}

// binary reads a count, then length-prefixed messages.
func (m *decoder) binary() error {
	count, err := m.size()
	if err != nil || count <= 0 || int64(count) > (m.MaxBodySize-4)/5 {
		return ErrBadBody
	}
	for range count {
		size, err := m.size()
		if err != nil || size <= 0 || int64(size) > m.MaxMsgSize {
			return ErrBadMessage
		}
		if m.read += int64(size); m.read > m.MaxBodySize || m.draft.Size()+int(size) > MaxDraft {
			return ErrBadBody
		}
		if err := m.message(int(size)); err != nil {
			return err
		}
	}
	return nil
}

// message reads one message. Without a deadline and a header it reads directly into the
// batch.
func (m *decoder) message(size int) error {
	if m.DeliverAt == 0 && m.Header == nil { // an id is in the header
		return badMessage(io.ReadFull(m.in, m.draft.Grow(size)))
	}
	body := make([]byte, size)
	if err := badMessage(io.ReadFull(m.in, body)); err != nil {
		return err
	}
	return m.add(body)
}

func badMessage(_ int, err error) error {
	if err != nil {
		return ErrBadMessage
	}
	return nil
}

func (m *decoder) size() (int32, error) {
	var b [4]byte
	m.read += 4
	_, err := io.ReadFull(m.in, b[:])
	return int32(binary.BigEndian.Uint32(b[:])), err
}
