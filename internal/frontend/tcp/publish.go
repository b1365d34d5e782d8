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
func (c *conn) pub(ctx context.Context, verb string) error {
	c.partition = c.partitionAt(2)
	size, err := c.putStart(ctx, verb)
	if err != nil {
		return err
	}
	all := bodies{1, size, size}
	if c.partition < 0 { // a run has only PUBs without a partition
		all.count, all.total = c.pubRun(size)
	}
	early, refused := c.admitBefore(ctx, all)
	if refused != nil {
		return c.refusePut(ctx, verb, all.count, c.readRun(nil, all), refused)
	}
	draft := queue.NewDraft(all.total + all.count*messageOverhead) // not in a closure, which would cost another allocation
	err = c.readRun(draft, all)
	if refused, err = c.admitAfter(ctx, all, early, err); err != nil || refused != nil {
		return c.refusePut(ctx, verb, all.count, err, refused)
	}
	return c.publish(ctx, answer{put: verb, count: all.count}, nil, draft)
}

// bodies are the sizes of one message, or of pipelined PUBs.
type bodies struct{ count, first, total int }

// readRun reads the PUBs that pubRun found into a draft, or skips them if draft is nil.
func (c *conn) readRun(draft *queue.DraftBuilder, all bodies) error {
	size := all.first
	for i := range all.count {
		if i > 0 {
			var head int
			size, head = c.sameTopicPub(c.in.buffered())
			c.in.discard(head)
		}
		if draft == nil {
			if err := c.in.skip(int64(size)); err != nil {
				return err
			}
		} else if c.in.read(draft.Grow(size)) != nil {
			return fatal(codeBadMessage, "PUB failed to read message body")
		}
	}
	return nil
}

// dpub: DPUB <topic> <defer_ms>\n, then one message.
func (c *conn) dpub(ctx context.Context, verb string) error {
	c.partition = -1
	if err := c.putTopic(verb, 3); err != nil {
		return err
	}
	ms, ok := decimal(c.params[2])
	if !ok {
		return fatal(codeInvalid, "DPUB could not parse timeout %s", c.params[2])
	}
	limit := c.h.opts.MaxDefer()
	if ms > uint64(limit/time.Millisecond) {
		return fatal(codeInvalid, "DPUB timeout %s out of range 0-%d", c.params[2], limit/time.Millisecond)
	}
	size, err := c.putSize(ctx, verb)
	if err != nil {
		return err
	}
	var draft *queue.DraftBuilder
	refused, err := c.receive(ctx, size, func() error {
		m := queue.Message{Body: c.scratchOf(size)}
		if c.in.read(m.Body) != nil {
			return fatal(codeBadMessage, "DPUB failed to read message body")
		}
		if ms > 0 {
			m.DeliverAt = time.Now().Add(time.Duration(ms) * time.Millisecond).UnixNano()
		}
		draft = queue.NewDraft(size + 2*messageOverhead)
		return draft.AddMessage(m)
	})
	if err != nil || refused != nil {
		return c.refusePut(ctx, verb, 1, err, refused)
	}
	return c.publish(ctx, answer{put: verb, count: 1}, nil, draft)
}

// scratchOf returns memory for a message that is copied into a draft. The next call returns the same bytes.
func (c *conn) scratchOf(size int) []byte {
	b := c.scratch
	if cap(b) < size {
		b = make([]byte, size)
	}
	if size <= limits.Free {
		c.scratch = b // a larger buffer would occupy memory for the lifetime of the connection
	}
	return b[:size]
}

// receive reads the body of a put, and waits for its admission before or after that (admitsEarly). The body of a
// refused put is skipped, so that the next command is found.
func (c *conn) receive(ctx context.Context, size int, read func() error) (refused, err error) {
	one := bodies{1, size, size}
	early, refused := c.admitBefore(ctx, one)
	if refused != nil {
		return refused, c.in.skip(int64(size))
	}
	return c.admitAfter(ctx, one, early, read())
}

// admitBefore waits for the admission of puts, if that comes before their bodies, and reserves the memory of the bodies.
func (c *conn) admitBefore(ctx context.Context, all bodies) (early bool, refused error) {
	if early = c.admitsEarly(all.first); early {
		refused = c.admit(ctx, all.total)
	}
	if refused == nil {
		refused = c.reserve(ctx, all.first)
	}
	return early, refused
}

// admitAfter waits for the admission of puts whose bodies were read with the result err, unless it came before.
func (c *conn) admitAfter(ctx context.Context, all bodies, early bool, err error) (refused, _ error) {
	c.arrived()
	if err == nil && !early {
		refused = c.admit(ctx, all.total)
	}
	return refused, err
}

// admitsEarly reports whether a put to c.topic is admitted before its body is read, which saves the memory of the body
// during the wait. Admission creates the topic, and a partial put must not create one: the body must have arrived, or
// this connection must have published to the topic before.
func (c *conn) admitsEarly(size int) bool {
	return len(c.in.buffered()) >= size || c.admitted == c.topic
}

// admit waits for room for a put to c.topic. It renews the read deadline, because the wait may outlast it.
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

// putStart checks the parameters of PUB, and reads the length of the message.
func (c *conn) putStart(ctx context.Context, verb string) (size int, err error) {
	if err := c.putTopic(verb, 2); err != nil {
		return 0, err
	}
	return c.putSize(ctx, verb)
}

func (c *conn) putTopic(verb string, params int) error {
	if len(c.params) < params {
		return fatal(codeInvalid, "%s insufficient number of parameters", verb)
	}
	if !c.setTopic() {
		return fatal(codeBadTopic, "%s topic name %q is not valid", verb, c.params[1])
	}
	return nil
}

// setTopic sets c.topic from the first parameter. False: the name is not valid.
func (c *conn) setTopic() bool {
	name := c.params[1]
	if len(name) > 0 && string(name) == c.topic {
		return true
	}
	if !api.ValidName(string(name)) {
		return false
	}
	c.topic = string(name)
	return true
}

// putSize reads the length of one message, and checks that the client may publish it. The body of a refused put is read
// before the refusal, so that a short body is reported first, as in stock NSQ.
func (c *conn) putSize(ctx context.Context, verb string) (int, error) {
	size, err := c.in.size()
	switch {
	case err != nil:
		return 0, fatal(codeBadMessage, "%s failed to read message body size", verb)
	case size <= 0:
		return 0, fatal(codeBadMessage, "%s invalid message body size %d", verb, size)
	case int64(size) > c.h.opts.MaxMsgSize:
		return 0, fatal(codeBadMessage, "%s message too big %d > %d", verb, size, c.h.opts.MaxMsgSize)
	}
	if err = c.authorize(ctx, verb, c.topic, ""); err != nil && c.in.skip(int64(size)) != nil {
		err = fatal(codeBadMessage, "%s failed to read message body", verb)
	}
	return int(size), err
}

// pubRun counts the complete PUBs to the current topic in the buffer, beginning with the one whose body comes next, and
// the bytes of their bodies.
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
// its body (0: no such PUB) and of the bytes before the body.
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

// publish passes a put to the Publisher, which answers later, into the reserved slot. key nil = any partition.
func (c *conn) publish(ctx context.Context, a answer, key []byte, draft *queue.DraftBuilder) error {
	if err := c.session.Load().AllowPut(draft.Count(), draft.Size()); err != nil {
		return c.refusePut(ctx, a.put, a.count, nil, err)
	}
	s, err := c.fifo.reserve(ctx, a, draft.Size(), &c.reserved)
	if err != nil {
		return err
	}
	c.countPublished(draft.Count())
	c.h.backend.Publisher.Publish(c.topic, c.partition, key, draft.Draft(ident.RequestID{}), s)
	return nil
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
