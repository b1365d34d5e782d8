package tcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"strconv"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

type item struct {
	queue.Message
	key   []byte // chooses the partition; nil = any
	trace *trace // nil = the answer is only OK
	// reserved is a name in the header that requires the right to administer the topic; "" = none.
	reserved string
	seq      uint64 // the number that the producer gave the message
	numbered bool   // it gave one
}

// trace requests an answer with the position of a put.
type trace struct {
	id   uint64
	size int // of the bodies, bytes
}

// answerSize is the length of a traced answer in bytes: OK, 8 message id, 8 trace id, 8 sequence, 4 size. The fork has
// a byte offset and a size on disk in place of the sequence and the size of the bodies.
const answerSize = 2 + 8 + 8 + 8 + 4

func (t *trace) answer(r api.PutResult) []byte {
	b := make([]byte, 2+8, answerSize)
	copy(b, responseOK)
	_, _ = hex.Decode(b[2:], r.ID[:]) // ids are hex
	b = binary.BigEndian.AppendUint64(b, t.id)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Sequence))
	return binary.BigEndian.AppendUint32(b, uint32(t.size))
}

// pubExtended: PUB_EXT <topic>\n or PUB_TRACE <topic>\n, then one message in the form of the command.
func pubExtended(form form) func(c *conn, ctx context.Context, verb string) error {
	return func(c *conn, ctx context.Context, verb string) error {
		if err := c.readPartition(verb); err != nil {
			return err
		}
		size, err := c.putStart(ctx, verb)
		if err != nil {
			return err
		}
		var x item
		refused, err := c.receive(ctx, size, func() (err error) {
			x, err = c.readItem(ctx, verb, form, size)
			return err
		})
		if err != nil || refused != nil {
			return c.refusePut(ctx, "PUB", 1, err, refused)
		}
		draft := queue.NewDraft(size + len(queue.Identity{}))
		if err := draft.AddMessage(x.Message); err != nil {
			return fatal(codeBadMessage, "%s %s", verb, err)
		}
		return c.publish(ctx, answer{put: "PUB", count: 1, trace: x.trace}, x.key, draft)
	}
}

// mpubExtended: MPUB_EXT or MPUB_TRACE, an MPUB of such messages.
func mpubExtended(form form) func(c *conn, ctx context.Context, verb string) error {
	return func(c *conn, ctx context.Context, verb string) error {
		if err := c.readPartition(verb); err != nil {
			return err
		}
		var first item
		sum := trace{}
		add := func(draft *queue.DraftBuilder, size int) error {
			x, err := c.readItem(ctx, verb, form, size)
			switch {
			case err != nil:
				return ending(err)
			case draft.Count() == 0:
				first = x
			case !bytes.Equal(x.key, first.key):
				return fatal(codeInvalidHeader, "%s messages of one put must have the same %s", verb, headerKey)
			}
			if x.Identity != (queue.Identity{}) && x.key == nil { // published again alone, it would go to another partition
				return fatal(codeInvalidHeader, "%s messages with %s or %s require a %s in a put of several", verb, queue.HeaderID, queue.HeaderSequence, headerKey)
			}
			sum.size += len(x.Body)
			if err := draft.AddMessage(x.Message); err != nil {
				return fatal(codeBadMessage, "%s %s", verb, err)
			}
			return nil
		}
		draft, err := c.multi(ctx, verb, add)
		if err != nil || draft == nil {
			return err
		}
		a := answer{put: "MPUB", count: 1}
		if verb == "MPUB_TRACE" {
			a.trace = &sum
		}
		return c.publish(ctx, a, first.key, draft)
	}
}

// partitionOf reads the partition parameter of an extended command: its number, or -1 for any.
func partitionOf(verb string, param []byte) (int, error) {
	if string(param) == "-1" {
		return -1, nil
	}
	n, err := strconv.ParseUint(string(param), 10, 10) // unlike decimal: an empty string is refused
	if err != nil {
		return 0, fatal(codeBadPartition, "%s partition %q is not valid", verb, param)
	}
	return int(n), nil
}

func (c *conn) readPartition(verb string) (err error) {
	if c.partition = -1; len(c.params) > 2 {
		c.partition, err = partitionOf(verb, c.params[2])
	}
	return err
}

// partitionAt returns the partition in a parameter, or -1. Stock clients send no such parameter, and stock NSQ ignores any.
func (c *conn) partitionAt(i int) int {
	if len(c.params) > i {
		if n, err := strconv.ParseUint(string(c.params[i]), 10, 10); err == nil {
			return int(n)
		}
	}
	return -1
}

func (c *conn) readItem(ctx context.Context, verb string, form form, size int) (item, error) {
	raw := c.scratchOf(size) // the draft copies header and body, the item its key
	if err := c.in.read(raw); err != nil {
		return item{}, fatal(codeBadMessage, "%s failed to read message body", verb)
	}
	x, err := form(verb, raw)
	if err == nil {
		err = x.giveIdentity(verb, c.producer)
	}
	if err == nil && x.reserved != "" {
		err = c.authorizeReserved(ctx, verb, x.reserved)
	}
	return x, err
}

type form func(verb string, raw []byte) (item, error)

// traced decodes 8 bytes of trace id and the body.
func traced(verb string, raw []byte) (item, error) {
	if len(raw) <= 8 {
		return item{}, fatal(codeBadMessage, "%s no body after the trace id", verb)
	}
	id, body := binary.BigEndian.Uint64(raw), raw[8:]
	return item{Message: queue.Message{Trace: id, Body: body}, trace: &trace{id, len(body)}}, nil
}

// headed decodes a 2-byte length, a JSON object and the body.
func headed(verb string, raw []byte) (item, error) {
	if len(raw) < 2 || len(raw) <= 2+int(binary.BigEndian.Uint16(raw)) {
		return item{}, fatal(codeBadMessage, "%s header does not fit the message of %d bytes", verb, len(raw))
	}
	end := 2 + int(binary.BigEndian.Uint16(raw))
	x := item{Message: queue.Message{Header: raw[2:end], Body: raw[end:]}}
	err := x.readHeader(verb)
	return x, err
}
