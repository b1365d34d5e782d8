package tcp

import (
	"context"

	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// maxBodyHint bounds the memory that is allocated for an announced length, in bytes.
const maxBodyHint = 256 << 10

// mpub: MPUB <topic>\n, body size, count, then count messages. One invalid message refuses the whole put. The parser
// follows the sizes of the messages; only the range of the body size is checked.
func (c *conn) mpub(ctx context.Context, verb string) error {
	c.partition = c.partitionAt(2)
	draft, err := c.multi(ctx, verb, func(draft *queue.DraftBuilder, size int) error {
		if c.in.read(draft.Grow(size)) != nil {
			return fatal(codeBadMessage, "MPUB failed to read message body")
		}
		return nil
	})
	if err != nil || draft == nil {
		return err
	}
	return c.publish(ctx, answer{put: verb, count: 1}, nil, draft)
}

// multi reads an MPUB of any form; add reads one message. A nil draft means that the put was not admitted and has been
// answered.
func (c *conn) multi(ctx context.Context, verb string, add func(*queue.DraftBuilder, int) error) (*queue.DraftBuilder, error) {
	if len(c.params) < 2 {
		return nil, fatal(codeInvalid, "%s insufficient number of parameters", verb)
	}
	if !c.setTopic() {
		// Stock NSQ doubles the code, and clients may match on it.
		return nil, fatal(codeBadTopic, "E_BAD_TOPIC %s topic name %q is not valid", verb, c.params[1])
	}
	if err := c.authorize(ctx, verb, c.topic, ""); err != nil {
		return nil, err
	}
	size, err := c.in.size()
	switch {
	case err != nil:
		return nil, fatal(codeBadBody, "%s failed to read body size", verb)
	case size <= 0:
		return nil, fatal(codeBadBody, "%s invalid body size %d", verb, size)
	case int64(size) > c.h.opts.MaxBodySize:
		return nil, fatal(codeBadBody, "%s body too big %d > %d", verb, size, c.h.opts.MaxBodySize)
	}
	var refused error
	early := c.admitsEarly(int(size))
	if early {
		refused = c.admit(ctx, int(size))
	}
	if busy := c.reserve(ctx, int(size)); busy != nil {
		return nil, c.refusePut(ctx, "MPUB", 1, c.in.skip(int64(size)), busy)
	}
	draft, err := c.readMulti(verb, int(size), add)
	c.arrived()
	if err != nil {
		return nil, err
	}
	if !early {
		refused = c.admit(ctx, int(size))
	}
	if refused != nil {
		return nil, c.refusePut(ctx, "MPUB", 1, nil, refused)
	}
	return draft, nil
}

func (c *conn) readMulti(verb string, hint int, add func(*queue.DraftBuilder, int) error) (*queue.DraftBuilder, error) {
	count, err := c.in.size()
	if err != nil {
		return nil, fatal(codeBadBody, "%s failed to read message count", verb)
	}
	if count <= 0 || int64(count) > (c.h.opts.MaxBodySize-4)/5 {
		return nil, fatal(codeBadBody, "%s invalid message count %d", verb, count)
	}
	draft := queue.NewDraft(min(hint+int(count), maxBodyHint))
	for i := range count {
		size, err := c.in.size()
		switch {
		case err != nil:
			return nil, fatal(codeBadMessage, "%s failed to read message(%d) body size", verb, i)
		case size <= 0:
			return nil, fatal(codeBadMessage, "%s invalid message(%d) body size %d", verb, i, size)
		case int64(size) > c.h.opts.MaxMsgSize:
			return nil, fatal(codeBadMessage, "%s message too big %d > %d", verb, size, c.h.opts.MaxMsgSize)
		case draft.Size()+int(size) > 2*hint+limits.Free: // memory was reserved only for the announced size
			return nil, fatal(codeBadBody, "%s body larger than its size %d", verb, hint)
		case draft.Size()+int(size) > queue.MaxBatchBytes-messageOverhead:
			return nil, fatal(codeBadBody, "%s body too big %d > %d", verb, draft.Size()+int(size), c.h.opts.MaxBodySize)
		}
		if err := add(draft, int(size)); err != nil {
			return nil, err
		}
	}
	return draft, nil
}
