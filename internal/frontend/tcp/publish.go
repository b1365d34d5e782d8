package tcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Pipelined PUBs of one topic that are already in the buffer become one put. The reader never waits for more of them.
const (
	maxRunMessages = 256
	maxRunBytes    = 1 << 20
)

// messageOverhead is the size that the encoding adds to a plain body, in bytes (queue/doc.go).
const messageOverhead = 5

// pub: PUB <topic>\n, then one message.
func (c *conn) pub(ctx context.Context) error {
	c.partition = c.partitionAt(2)
	size, err := c.putStart("PUB", 2)
	if err != nil {
		return err
	}
	if err := c.authorizePut(ctx, "PUB", size); err != nil {
		return err
	}
	count, total := 1, size
	if c.partition < 0 { // those behind it name none
		count, total = c.pubRun(size)
	}
	early := c.admitsEarly(size)
	if early {
		if err := c.admit(ctx, total); err != nil {
			return c.refusePut(ctx, "PUB", count, c.skipRun(count, size), err)
		}
	}
	if err := c.reserve(ctx, size); err != nil {
		return c.refusePut(ctx, "PUB", count, c.skipRun(count, size), err)
	}
	draft := queue.NewDraft(total + count*messageOverhead)
	err = c.readRun(draft, count, size)
	c.arrived()
	if err != nil {
		return err
	}
	if !early {
		if err := c.admit(ctx, total); err != nil {
			return c.refusePut(ctx, "PUB", count, nil, err)
		}
	}
	return c.publish(ctx, "PUB", count, draft)
}

// readRun reads the PUBs that pubRun found.
func (c *conn) readRun(draft *queue.DraftBuilder, count, size int) error {
	for i := range count {
		if i > 0 {
			size = c.nextOfRun()
		}
		if err := c.in.read(draft.Grow(size)); err != nil {
			return fatal(codeBadMessage, "PUB failed to read message body")
		}
	}
	return nil
}

// dpub: DPUB <topic> <defer_ms>\n, then one message.
func (c *conn) dpub(ctx context.Context) error {
	c.partition = -1
	if len(c.params) < 3 {
		return fatal(codeInvalid, "DPUB insufficient number of parameters")
	}
	if err := c.setTopic(); err != nil {
		return fatal(codeBadTopic, "DPUB topic name %q is not valid", c.params[1])
	}
	ms, ok := decimal(c.params[2])
	if !ok {
		return fatal(codeInvalid, "DPUB could not parse timeout %s", c.params[2])
	}
	limit := c.h.opts.maxDefer()
	if ms > uint64(limit/time.Millisecond) {
		return fatal(codeInvalid, "DPUB timeout %s out of range 0-%d", c.params[2], limit/time.Millisecond)
	}
	size, err := c.messageSize("DPUB")
	if err != nil {
		return err
	}
	if err := c.authorizePut(ctx, "DPUB", size); err != nil {
		return err
	}
	var draft *queue.DraftBuilder
	refused, err := c.receive(ctx, size, func() (err error) {
		draft, err = c.deferredDraft(size, time.Duration(ms)*time.Millisecond)
		return err
	})
	if err != nil || refused != nil {
		return c.refusePut(ctx, "DPUB", 1, err, refused)
	}
	return c.publish(ctx, "DPUB", 1, draft)
}

func (c *conn) deferredDraft(size int, delay time.Duration) (*queue.DraftBuilder, error) {
	body := c.scratchOf(size)
	if err := c.in.read(body); err != nil {
		return nil, fatal(codeBadMessage, "DPUB failed to read message body")
	}
	m := queue.Message{Body: body}
	if delay > 0 {
		m.DeliverAt = time.Now().Add(delay).UnixNano()
	}
	draft := queue.NewDraft(size + 2*messageOverhead)
	return draft, draft.AddMessage(m)
}

// scratchOf is room for a message that is copied into a draft. The next call returns the same bytes.
func (c *conn) scratchOf(size int) []byte {
	b := c.scratch
	if cap(b) < size {
		b = make([]byte, size)
	}
	if size <= limits.Free {
		c.scratch = b // a larger one would be kept as long as the connection
	}
	return b[:size]
}

// receive reads the body of a put and waits for its admission, in the order that admitsEarly selects. It reads the body
// of a refused put too, so that the next command is found.
func (c *conn) receive(ctx context.Context, size int, read func() error) (refused, err error) {
	early := c.admitsEarly(size)
	if early {
		if refused = c.admit(ctx, size); refused != nil {
			return refused, c.in.skip(int64(size))
		}
	}
	if refused = c.reserve(ctx, size); refused != nil {
		return refused, c.in.skip(int64(size))
	}
	err = read()
	c.arrived()
	if err != nil {
		return nil, err
	}
	if !early {
		refused = c.admit(ctx, size)
	}
	return refused, nil
}

// admitsEarly reports whether a put to c.topic is admitted before its body is read. Admission creates the topic, and a
// partial put must not create one. So the body must have arrived, or this connection must have published to the topic
// before. Waiting for room before reading saves the memory of the body.
func (c *conn) admitsEarly(size int) bool {
	return len(c.in.buffered()) >= size || c.admitted == c.topic
}

// admit waits for room for a put to c.topic. The wait may outlast the client's read deadline, so the deadline is
// renewed.
func (c *conn) admit(ctx context.Context, size int) error {
	if c.unjudged != nil {
		return guard.NotStored(c.unjudged)
	}
	err := c.h.backend.Publisher.Admit(ctx, c.topic, size)
	if err == nil {
		c.admitted = c.topic
	}
	if len(c.in.buffered()) < size {
		c.arm()
	}
	return err
}

// putStart checks the parameters of PUB and reads the length of the message.
func (c *conn) putStart(verb string, params int) (size int, err error) {
	if len(c.params) < params {
		return 0, fatal(codeInvalid, "%s insufficient number of parameters", verb)
	}
	if err := c.setTopic(); err != nil {
		return 0, fatal(codeBadTopic, "%s topic name %q is not valid", verb, c.params[1])
	}
	return c.messageSize(verb)
}

// setTopic sets c.topic from the first parameter.
func (c *conn) setTopic() error {
	name := c.params[1]
	if len(name) > 0 && string(name) == c.topic {
		return nil
	}
	if !api.ValidName(string(name)) {
		return errBadName
	}
	c.topic = string(name)
	return nil
}

// messageSize reads and checks the length of one message.
func (c *conn) messageSize(verb string) (int, error) {
	size, err := c.in.size()
	switch {
	case err != nil:
		return 0, fatal(codeBadMessage, "%s failed to read message body size", verb)
	case size <= 0:
		return 0, fatal(codeBadMessage, "%s invalid message body size %d", verb, size)
	case int64(size) > c.h.opts.MaxMsgSize:
		return 0, fatal(codeBadMessage, "%s message too big %d > %d", verb, size, c.h.opts.MaxMsgSize)
	}
	return int(size), nil
}

// pubRun counts the complete PUBs to the current topic in the buffer, one after the other, beginning with the one whose
// body comes next. It also returns the bytes of their bodies.
func (c *conn) pubRun(first int) (count, total int) {
	rest := c.in.buffered()
	count, total = 1, first
	if len(rest) < first {
		return count, total
	}
	for rest = rest[first:]; count < maxRunMessages; count++ {
		size, head := c.sameTopicPub(rest)
		if size == 0 || total+size > maxRunBytes {
			break
		}
		total += size
		rest = rest[head+size:]
	}
	return count, total
}

// sameTopicPub recognises a complete and valid PUB to the current topic at the beginning of b. It returns the size of
// its body (0 = no such PUB) and of the bytes before the body.
func (c *conn) sameTopicPub(b []byte) (size, head int) {
	head = len("PUB ") + len(c.topic) + 1 + 4
	if len(b) <= head || !bytes.HasPrefix(b, pubPrefix) ||
		string(b[4:head-5]) != c.topic || b[head-5] != '\n' {
		return 0, head
	}
	n := int32(binary.BigEndian.Uint32(b[head-4:]))
	if n <= 0 || int64(n) > c.h.opts.MaxMsgSize || len(b)-head < int(n) {
		return 0, head
	}
	return int(n), head
}

var pubPrefix = []byte("PUB ")

// nextOfRun consumes the bytes before the body of the next PUB that pubRun found.
func (c *conn) nextOfRun() int {
	size, head := c.sameTopicPub(c.in.buffered())
	c.in.discard(head)
	return size
}

// skipRun consumes the PUBs that pubRun found.
func (c *conn) skipRun(count, size int) error {
	for i := range count {
		if i > 0 {
			size = c.nextOfRun()
		}
		if err := c.in.skip(int64(size)); err != nil {
			return err
		}
	}
	return nil
}

// publish passes the put to the Publisher. The Publisher answers later, into the reserved slot.
func (c *conn) publish(ctx context.Context, verb string, answers int, draft *queue.DraftBuilder) error {
	return c.publishKeyed(ctx, answer{put: verb, count: answers}, nil, draft)
}

// publishKeyed is publish to the partition of a key; nil = any partition.
func (c *conn) publishKeyed(ctx context.Context, a answer, key []byte, draft *queue.DraftBuilder) error {
	if err := c.allowPut(draft); err != nil {
		return c.refusePut(ctx, a.put, a.count, nil, err)
	}
	s, err := c.fifo.reserve(ctx, a, draft.Size(), &c.room)
	if err != nil {
		return err
	}
	c.countPublished(draft.Count())
	if c.partition >= 0 {
		c.h.backend.Publisher.PublishAt(c.topic, c.partition, draft.Draft(ident.RequestID{}), s)
		return nil
	}
	c.h.backend.Publisher.Publish(c.topic, key, draft.Draft(ident.RequestID{}), s)
	return nil
}

// allowPut returns the refusal of a put if the publish rate of the client's user is used up. The bytes are counted
// after decompression.
func (c *conn) allowPut(draft *queue.DraftBuilder) error {
	if c.h.backend.Guard == nil {
		return nil
	}
	return c.session.Load().AllowPut(draft.Count(), draft.Size())
}

// refusePut answers puts that were not admitted. Their bodies were read or skipped, so the connection stays open;
// missing is the error if that failed.
func (c *conn) refusePut(ctx context.Context, verb string, count int, missing, reason error) error {
	if missing != nil {
		return missing
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	_, text := putFrame(verb, reason)
	for range count {
		if err := c.fifo.add(ctx, answer{kind: frameError, text: text}); err != nil {
			return err
		}
	}
	return nil
}
