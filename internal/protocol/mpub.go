package protocol

import (
	"context"

	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// maxBodyHint bounds the memory taken on the word of a length that the client
// only announced.
const maxBodyHint = 256 << 10

// mpub: MPUB <topic>\n, body size, count, then count messages. The put is
// refused whole if one message is bad. Only the inner sizes steer the parse;
// the outer one is checked for its range.
func (c *conn) mpub(ctx context.Context) error {
	if len(c.params) < 2 {
		return fatal(codeInvalid, "MPUB insufficient number of parameters")
	}
	if err := c.setTopic(); err != nil {
		// Stock NSQ doubles the code, and clients may match on it.
		return fatal(codeBadTopic, "E_BAD_TOPIC MPUB topic name %q is not valid", c.params[1])
	}
	if err := c.authorize(ctx, "MPUB", c.topic, ""); err != nil {
		return err
	}
	size, err := c.in.size()
	switch {
	case err != nil:
		return fatal(codeBadBody, "MPUB failed to read body size")
	case size <= 0:
		return fatal(codeBadBody, "MPUB invalid body size %d", size)
	case int64(size) > c.h.opts.MaxBodySize:
		return fatal(codeBadBody, "MPUB body too big %d > %d", size, c.h.opts.MaxBodySize)
	}
	refused := c.admit(ctx, int(size))
	draft, err := c.readMulti(int(size))
	if err != nil {
		return err
	}
	if refused != nil {
		return c.refusePut(ctx, "MPUB", 1, nil, refused)
	}
	return c.publish(ctx, "MPUB", draft.Count(), draft)
}

// readMulti reads the count and the messages of an MPUB.
func (c *conn) readMulti(hint int) (*queue.DraftBuilder, error) {
	count, err := c.in.size()
	if err != nil {
		return nil, fatal(codeBadBody, "MPUB failed to read message count")
	}
	if count <= 0 || int64(count) > (c.h.opts.MaxBodySize-4)/5 {
		return nil, fatal(codeBadBody, "MPUB invalid message count %d", count)
	}
	draft := queue.NewDraft(min(hint+int(count), maxBodyHint))
	for i := range count {
		size, err := c.in.size()
		switch {
		case err != nil:
			return nil, fatal(codeBadMessage, "MPUB failed to read message(%d) body size", i)
		case size <= 0:
			return nil, fatal(codeBadMessage, "MPUB invalid message(%d) body size %d", i, size)
		case int64(size) > c.h.opts.MaxMsgSize:
			return nil, fatal(codeBadMessage, "MPUB message too big %d > %d", size, c.h.opts.MaxMsgSize)
		case draft.Size()+int(size) > queue.MaxBatchBytes-messageOverhead:
			return nil, fatal(codeBadBody, "MPUB body too big %d > %d", draft.Size()+int(size), c.h.opts.MaxBodySize)
		}
		if err := c.in.read(draft.Grow(int(size))); err != nil {
			return nil, fatal(codeBadMessage, "MPUB failed to read message body")
		}
	}
	return draft, nil
}
