package protocol

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// The headers of PUB_EXT that this broker interprets.
const (
	headerKey   = "##key"          // chooses the partition
	headerTrace = "##trace_id"     // a decimal: requests an answer with the position of the message
	headerEpoch = "##epoch"        // reserved to the broker, see withField
	headerOnly  = "##only_channel" // the one channel that the message is for
)

// item is one message of an extended put with its header.
type item struct {
	queue.Message
	key   []byte // chooses the partition; nil = any
	trace *trace // nil = the answer is OK alone
	// addressed: the header names the one channel that the message is for.
	addressed bool
	seq       uint64 // the number that the producer gave the message
	numbered  bool   // it gave one
}

// trace requests an answer with the position of a put.
type trace struct {
	id   uint64
	size int // of the bodies, bytes
}

// answerSize is the length of a traced answer in bytes: OK, 8 message id, 8 trace id, 8
// sequence, 4 size. In place of the fork's byte offset and size on disk this broker sends the
// sequence and the size of the bodies, as in the messages of SUB_ADVANCED.
const answerSize = 2 + 8 + 8 + 8 + 4

func (t *trace) answer(r edge.PutResult) []byte {
	b := make([]byte, 2+8, answerSize)
	copy(b, responseOK)
	_, _ = hex.Decode(b[2:], r.ID[:]) // ids are hex
	b = binary.BigEndian.AppendUint64(b, t.id)
	b = binary.BigEndian.AppendUint64(b, uint64(r.Sequence))
	return binary.BigEndian.AppendUint32(b, uint32(t.size))
}

// pubExtended: PUB_EXT <topic>\n or PUB_TRACE <topic>\n, then one message in the form of the
// command.
func (c *conn) pubExtended(ctx context.Context, verb string, form form) error {
	if err := c.readPartition(verb); err != nil {
		return err
	}
	size, err := c.putStart(verb, 2)
	if err != nil {
		return err
	}
	if err := c.authorizePut(ctx, verb, size); err != nil {
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
	draft := queue.NewDraft(size)
	if err := draft.AddMessage(x.Message); err != nil {
		return fatal(codeBadMessage, "%s %s", verb, err)
	}
	return c.publishKeyed(ctx, answer{put: "PUB", count: 1, trace: x.trace}, x.key, draft)
}

// mpubExtended: MPUB_EXT or MPUB_TRACE, an MPUB of such messages.
func (c *conn) mpubExtended(ctx context.Context, verb string, form form) error {
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
	return c.publishKeyed(ctx, a, first.key, draft)
}

// readPartition reads the partition parameter of an extended put: its number, or -1 for any.
func (c *conn) readPartition(verb string) error {
	if c.partition = c.partitionAt(2); len(c.params) > 2 && c.partition < 0 && string(c.params[2]) != "-1" {
		return fatal(codeBadPartition, "%s partition %q is not valid", verb, c.params[2])
	}
	return nil
}

// partitionAt is the partition in a parameter: its number, or -1 if there is none. Stock clients send no
// such parameter, and stock NSQ ignores any.
func (c *conn) partitionAt(i int) int {
	if len(c.params) <= i {
		return -1
	}
	n, err := strconv.ParseUint(string(c.params[i]), 10, 10)
	if err != nil {
		return -1
	}
	return int(n)
}

func (c *conn) readItem(ctx context.Context, verb string, form form, size int) (item, error) {
	raw := make([]byte, size)
	if err := c.in.read(raw); err != nil {
		return item{}, fatal(codeBadMessage, "%s failed to read message body", verb)
	}
	x, err := form(verb, raw)
	if err == nil {
		err = x.giveIdentity(verb, c.producer)
	}
	if err == nil && x.addressed {
		err = c.authorizeAddressed(ctx, verb)
	}
	return x, err
}

// form decodes one message of an extended command.
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
	return x, x.readHeader(verb)
}

// readHeader checks the header and reads the fields that this broker interprets.
func (x *item) readHeader(verb string) error {
	if len(x.Header) == 0 {
		return nil
	}
	var fields map[string]any
	if !utf8.Valid(x.Header) || json.Unmarshal(x.Header, &fields) != nil || fields == nil {
		return fatal(codeInvalidHeader, "%s header is not a JSON object", verb)
	}
	for name := range fields {
		if err := edge.CheckHeaderName(name); err != nil {
			return fatal(codeInvalidHeader, "%s %s", verb, err)
		}
		x.addressed = x.addressed || name == headerOnly
	}
	if err := x.readNamed(verb, fields); err != nil {
		return err
	}
	if err := x.readSequence(verb, fields); err != nil {
		return err
	}
	if given, ok := fields[headerTrace]; ok {
		text, _ := given.(string)
		id, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return fatal(codeInvalidTrace, "%s %s must be a decimal in a string", verb, headerTrace)
		}
		x.trace = &trace{id, len(x.Body)}
	}
	return nil
}

// readNamed checks the fields that the broker interprets. Without the check an unreadable one
// would be ignored, and the answer would be OK.
func (x *item) readNamed(verb string, fields map[string]any) error {
	for _, name := range []string{headerKey, headerOnly, queue.HeaderID} {
		given, there := fields[name]
		text, ok := given.(string)
		if there && !ok {
			return fatal(codeInvalidHeader, "%s %s must be a string", verb, name)
		}
		if there && name == headerKey {
			x.key = []byte(text)
		}
		if there && name == queue.HeaderID {
			if !queue.ValidID(text) {
				return fatal(codeInvalidHeader, "%s %s must be 1 to %d bytes", verb, name, queue.MaxIDBytes)
			}
			x.Identity = queue.IdentityOf([]byte(text))
		}
	}
	if given, there := fields[queue.HeaderTTL]; there {
		ms, ok := given.(float64)
		if !ok || ms < 1 || ms > queue.MaxTTLMS || ms != math.Trunc(ms) {
			return fatal(codeInvalidHeader, "%s %s must be a number of milliseconds, 1 to %d", verb, queue.HeaderTTL, int64(queue.MaxTTLMS))
		}
	}
	return nil
}
