package tcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// The extensions of the replicated fork of NSQ that this broker supports: SUB_ORDERED, SUB_ADVANCED, PUB_EXT, MPUB_EXT,
// PUB_TRACE, MPUB_TRACE, and "extend_support" in IDENTIFY. A client that uses none of them receives stock frames. The
// kind of the header that follows the id in an extended message:
const (
	extNone = 0
	extJSON = 4
)

// format selects the encoding of messages for a client; it is set under output.mu.
type format struct {
	extended   bool // "extend_support": a header follows the id
	positioned bool // SUB_ADVANCED, SUB_ORDERED: position and size come before the body
	fenced     bool // SUB_ORDERED: the header includes the fencing token
}

// extendedLocked writes a message with the client's extensions between its id and its body.
func (o *output) extendedLocked(d *api.Delivery) error {
	var extra []byte
	if o.format.extended {
		extra = appendExtension(extra, d, o.format.fenced)
	}
	if o.format.positioned { // the fork has a byte offset and a size on disk here
		extra = binary.BigEndian.AppendUint64(extra, uint64(d.Message.Seq))
		extra = binary.BigEndian.AppendUint32(extra, uint32(len(d.Message.Body)))
	}
	h := o.headLocked(d, len(extra))
	if err := o.writeLocked(h, extra); err != nil {
		return err
	}
	return o.writeLocked(nil, d.Message.Body)
}

func appendExtension(b []byte, d *api.Delivery, fenced bool) []byte {
	header := d.Message.Header
	if d.Message.Trace != 0 {
		header = withField(header, headerTrace, strconv.Quote(strconv.FormatUint(d.Message.Trace, 10)))
	}
	if fenced { // the token only grows: external storage can refuse writes with an older one
		header = withField(header, headerEpoch, strconv.FormatUint(uint64(d.Epoch), 10))
	}
	if len(header) == 0 || len(header) > queue.MaxMessageHeader {
		return append(b, extNone)
	}
	b = append(b, extJSON)
	b = binary.BigEndian.AppendUint16(b, uint16(len(header)))
	return append(b, header...)
}

// withField inserts a field before the fields of a JSON object.
func withField(header []byte, name, value string) []byte {
	b := append([]byte(`{"`+name+`":`), value...)
	if len(header) < 2 || header[0] != '{' {
		return append(b, '}')
	}
	rest := header[1:]
	if i := firstByte(rest); i < len(rest) && rest[i] != '}' {
		b = append(b, ',')
	}
	return append(b, rest...)
}

// subscribeOrdered: SUB_ORDERED <topic> <channel> [partition]\n. The channel has one message in flight for each
// partition.
func (c *conn) subscribeOrdered(ctx context.Context, verb string) error {
	if c.sampleRate > 0 {
		return fatal(codeInvalid, "cannot %s with a sample rate", verb)
	}
	return c.attachPositioned(ctx, verb, api.SubscribeRequest{Ordered: true}, c.params[min(3, len(c.params)):])
}

// subscribeAdvanced: SUB_ADVANCED <topic> <channel> [partition] [type:value]\n. The start position only applies if the
// channel has no consumers.
func (c *conn) subscribeAdvanced(ctx context.Context, verb string) error {
	params, r := c.params[min(3, len(c.params)):], api.SubscribeRequest{}
	if n := len(params); n > 0 && bytes.IndexByte(params[n-1], ':') >= 0 {
		from, err := consumeStart(verb, string(params[n-1]))
		if err != nil {
			return err
		}
		r.From, r.Reposition = from, true
		params = params[:n-1]
	}
	if len(params) > 1 { // an invalid start, or a parameter after it
		return fatal(codeInvalid, "%s consume start %q is not valid", verb, params[1])
	}
	return c.attachPositioned(ctx, verb, r, params)
}

// attachPositioned subscribes to messages with their positions, of one partition if params name it.
func (c *conn) attachPositioned(ctx context.Context, verb string, r api.SubscribeRequest, params [][]byte) error {
	if r.Partition = -1; len(params) > 0 {
		var err error
		if r.Partition, err = partitionOf(verb, params[0]); err != nil {
			return err
		}
	}
	c.out.mu.Lock()
	c.out.format.positioned, c.out.format.fenced = true, r.Ordered
	c.out.mu.Unlock()
	return c.attach(ctx, verb, r)
}

// lastSecond is the end of the year 9999 in seconds. The current time in milliseconds exceeds it, so a wrong unit is
// detected.
const lastSecond = 253_402_300_799

// consumeStart converts the fork's type:value into api.SubscribeRequest.From.
func consumeStart(verb, text string) (string, error) {
	kind, value, _ := strings.Cut(text, ":")
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case kind == "virtual_queue":
		return "", fatal(codeInvalid, "%s virtual_queue is not supported: use msgcount or timestamp", verb)
	case kind == "special" && n == -1 && err == nil:
		return "latest", nil
	case kind == "msgcount" && n >= 0 && err == nil:
		return strconv.FormatInt(n, 10), nil
	case kind == "timestamp" && n > lastSecond && err == nil:
		return "", fatal(codeInvalid, "%s consume start %q is not valid: a timestamp is in seconds", verb, text)
	case kind == "timestamp" && n >= 0 && err == nil:
		return time.Unix(n, 0).UTC().Format(time.RFC3339Nano), nil
	}
	return "", fatal(codeInvalid, "%s consume start %q is not valid", verb, text)
}

// extFilter is the filter that a client of the replicated fork requests in IDENTIFY. In the fork it is a setting of the
// consumer, and messages that no consumer of a channel accepts stay. Here it is a setting of the channel, so that
// consumers of one channel do not finish each other's messages. A client may subscribe to a channel that has the filter
// it requests; any other SUB is refused, and the connection stays open.
type extFilter struct {
	Type    int    `json:"type"`
	Inverse bool   `json:"inverse"`
	Key     string `json:"filter_ext_key"`
	Data    string `json:"filter_data"`
}

// The types of extFilter.
const (
	extFilterExact  = 1
	extFilterRegexp = 2
	extFilterGlob   = 3
)

// filter returns the requested filter in the form of a channel's policy; "": none. refused is the reason why no channel
// can have it.
func (id *identity) filter() (text, refused string) {
	f := &id.ExtFilter
	switch {
	case id.DesiredTag == "" && f.Type == 0:
		return "", ""
	case id.DesiredTag != "" && f.Type != 0:
		return "", "desired_tag and ext_filter together are not supported: a filter is one condition"
	case id.DesiredTag != "":
		return "tag=" + id.DesiredTag, ""
	}
	name := "header:" + f.Key
	if f.Key == api.HeaderTag {
		name = "tag"
	}
	if f.Inverse {
		name = "!" + name
	}
	switch f.Type {
	case extFilterExact:
		return name + "=" + f.Data, ""
	case extFilterRegexp:
		return name + "~=" + f.Data, ""
	case extFilterGlob:
		if strings.ContainsAny(f.Data, `[]{}\`) {
			return "", "ext_filter with a glob of other characters than * and ? is not supported"
		}
		return name + "*=" + f.Data, ""
	}
	return "", "ext_filter of several conditions is not supported: a filter is one condition"
}

type item struct {
	queue.Message
	key   []byte // chooses the partition; nil = any
	trace *trace // nil = the answer is only OK
	// reserved is a name in the header that requires the right to administer the topic; "" = none.
	reserved string
	seq      uint64 // the number that the producer assigned to the message
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
			if x.Identity != (queue.Identity{}) && x.key == nil { // if it were published again alone, it would go to another partition
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
	n, err := strconv.ParseUint(string(param), 10, 10) // unlike decimal, it refuses an empty string
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

// partitionAt returns the partition in a parameter, or -1. Stock clients send no such parameter, and stock NSQ ignores
// it.
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
