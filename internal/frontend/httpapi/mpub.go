package httpapi

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// The answers to invalid bodies.
var (
	errBodyTooBig = fail(http.StatusRequestEntityTooLarge, "BODY_TOO_BIG")
	errMsgTooBig  = fail(http.StatusRequestEntityTooLarge, "MSG_TOO_BIG")
	errBadBody    = fail(http.StatusRequestEntityTooLarge, "BAD_BODY")
	errBadMessage = fail(http.StatusRequestEntityTooLarge, "BAD_MESSAGE")
	errEmpty      = fail(http.StatusBadRequest, "MSG_EMPTY")
	errRead       = fail(http.StatusInternalServerError, "INTERNAL_ERROR") // the connection failed
)

// decoder decodes the body of one POST /mpub into a draft. It uses at most the memory that the limits allow, whatever
// sizes the body announces. Length-prefixed messages without a header and a deadline are read directly into the batch.
type decoder struct {
	putArguments
	maxMsgSize, maxBodySize int64
	in                      *bufio.Reader
	draft                   *queue.DraftBuilder
	read                    int64
	scratch                 []byte // of the current line
}

func newDecoder(body io.Reader, draft *queue.DraftBuilder, maxMsgSize, maxBodySize int64) *decoder {
	return &decoder{maxMsgSize: maxMsgSize, maxBodySize: maxBodySize, in: bufio.NewReader(body), draft: draft}
}

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

// line reads one line without its newline. It stops at the first limit, so that an endless line uses bounded memory.
func (m *decoder) line() ([]byte, error) {
	line := m.scratch[:0]
	for {
		part, err := m.in.ReadSlice('\n')
		line = append(line, part...)
		m.read += int64(len(part))
		if m.read > m.maxBodySize {
			return nil, errBodyTooBig
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
		return nil, errRead
	}
}

// maxDraft bounds the batch in bytes. It leaves room for the overhead of one message.
const maxDraft = queue.MaxBatchBytes - 64

func (m *decoder) add(body []byte) error {
	if int64(len(body)) > m.maxMsgSize {
		return errMsgTooBig
	}
	if m.draft.Size()+len(m.header)+len(body) > maxDraft {
		return errBodyTooBig
	}
	x := queue.Message{Header: m.header, Body: body, DeliverAt: m.deliverAt}
	if m.identity != (queue.Identity{}) {
		x.Identity = m.identity.Part(m.draft.Count())
	}
	return m.draft.AddMessage(x)
}

func (m *decoder) binary() error {
	count, err := m.size()
	if err != nil || count <= 0 || int64(count) > (m.maxBodySize-4)/5 {
		return errBadBody
	}
	for range count {
		size, err := m.size()
		if err != nil || size <= 0 || int64(size) > m.maxMsgSize {
			return errBadMessage
		}
		if m.read += int64(size); m.read > m.maxBodySize || m.draft.Size()+int(size) > maxDraft {
			return errBadBody
		}
		if err := m.message(int(size)); err != nil {
			return err
		}
	}
	return nil
}

// message reads one message. Without a deadline and a header it reads directly into the batch.
func (m *decoder) message(size int) error {
	if m.deliverAt == 0 && m.header == nil { // an id would be in the header
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
		return errBadMessage
	}
	return nil
}

func (m *decoder) size() (int32, error) {
	var b [4]byte
	m.read += 4
	_, err := io.ReadFull(m.in, b[:])
	return int32(binary.BigEndian.Uint32(b[:])), err
}

// records adds the message records of an append (package msgstream). special: a header may have a field that begins
// with ##, or a message is due after latest. Errors are the answers above and outcome.ErrInvalid.
func records(body io.Reader, draft *queue.DraftBuilder, maxMsgSize, maxBodySize, latest int64) (special bool, err error) {
	limited := &io.LimitedReader{R: body, N: maxBodySize + 1}
	in := msgstream.NewMessageReader(limited)
	for {
		x, err := in.Next()
		var damage *msgstream.Damage
		switch {
		case err != nil && limited.N == 0: // the body is longer than the limit
			return false, errBodyTooBig
		case errors.Is(err, io.EOF) && draft.Count() == 0:
			return false, errEmpty
		case errors.Is(err, io.EOF):
			return special, nil
		case errors.As(err, &damage):
			return false, fmt.Errorf("%w: %w", outcome.ErrInvalid, damage)
		case err != nil:
			return false, errRead
		}
		m := x.Message
		special = special || m.DeliverAtNS > latest || bytes.Contains(m.Header, []byte("##")) ||
			bytes.Contains(m.Header, []byte(`\u`)) // an escaped # also counts
		switch {
		case int64(len(m.Body)) > maxMsgSize:
			return false, errMsgTooBig
		case draft.Size()+len(m.Header)+len(m.Body) > maxDraft:
			return false, errBodyTooBig
		}
		message := queue.Message{DeliverAt: m.DeliverAtNS, Trace: m.Trace, Header: m.Header, Body: m.Body}
		if draft.Count() == 0 {
			message.Identity, message.IsPutIdentity = identityOfCopy(m.Header)
		}
		if err := draft.AddMessage(message); err != nil {
			return false, fmt.Errorf("%w: %w", outcome.ErrInvalid, err)
		}
	}
}

// identityOfCopy returns the identity of a put whose first message is a copy; false: the header names no origin.
func identityOfCopy(header []byte) (queue.Identity, bool) {
	o, ok := msgstream.OriginOf(header)
	if !ok {
		return queue.Identity{}, false
	}
	return queue.IdentityOfCopy(queue.CopyOrigin, queue.Source{
		Topic: o.TopicID, Partition: o.Partition, Sequence: ident.Sequence(o.Sequence), Channel: o.Channel, TimeNS: o.TimeNS,
	}), true
}
