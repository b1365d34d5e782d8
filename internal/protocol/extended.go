package protocol

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"strconv"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// The extensions of the replicated fork of NSQ that this broker speaks:
// SUB_ORDERED, PUB_EXT, and "extend_support" in IDENTIFY. A client that uses
// none of them sees stock frames.
const (
	// extNone and extJSON say what follows the id in an extended message.
	extNone = 0
	extJSON = 4
	// headerKey is the header by which PUB_EXT chooses the partition.
	headerKey = "##key"
	// headerTrace asks the fork for an answer that this broker does not give.
	headerTrace = "##trace_id"
	// epochField is the fencing token in the header of an ordered message: it only
	// grows, so who keeps state outside can refuse writes with an older one.
	epochField = `"##epoch":`
)

// format is how messages are written to a client; set under output.mu.
type format struct {
	extended bool // "extend_support": a header follows the id
	ordered  bool // SUB_ORDERED: place and size come before the body
}

// subscribeOrdered: SUB_ORDERED <topic> <channel> [partition]\n. The channel has
// one message in flight for each partition.
func (c *conn) subscribeOrdered(ctx context.Context) error {
	partition := -1
	if len(c.params) > 3 {
		n, ok := decimal(c.params[3])
		if !ok || n > 1<<10 {
			return fatal(codeBadPartition, "SUB_ORDERED partition %q is not valid", c.params[3])
		}
		partition = int(n)
	}
	if c.sampleRate > 0 {
		return fatal(codeInvalid, "cannot SUB_ORDERED with a sample rate")
	}
	c.out.mu.Lock()
	c.out.format.ordered = true
	c.out.mu.Unlock()
	return c.attach(ctx, "SUB_ORDERED", edge.SubscribeRequest{Partition: partition, Ordered: true})
}

// pubExt: PUB_EXT <topic>\n, then a 2-byte length, a JSON object and the body,
// all in one message.
func (c *conn) pubExt(ctx context.Context) error {
	const verb = "PUB_EXT"
	size, err := c.putStart(verb, 2)
	if err != nil {
		return err
	}
	if err := c.authorizePut(ctx, verb, size); err != nil {
		return err
	}
	if err := c.admit(ctx, size); err != nil {
		return c.refusePut(ctx, "PUB", 1, c.in.skip(int64(size)), err)
	}
	raw := make([]byte, size)
	if err := c.in.read(raw); err != nil {
		return fatal(codeBadMessage, "PUB_EXT failed to read message body")
	}
	if len(raw) < 2 || len(raw) <= 2+int(binary.BigEndian.Uint16(raw)) {
		return fatal(codeBadMessage, "PUB_EXT header does not fit the message of %d bytes", size)
	}
	end := 2 + int(binary.BigEndian.Uint16(raw))
	m := queue.Message{Header: raw[2:end], Body: raw[end:]}
	key, err := headerPartition(m.Header)
	if err != nil {
		return err
	}
	draft := queue.NewDraft(size)
	if err := draft.AddMessage(m); err != nil {
		return fatal(codeBadMessage, "PUB_EXT %s", err)
	}
	return c.publishKeyed(ctx, "PUB", 1, key, draft)
}

// headerPartition checks a header and gives the key in it; nil = there is none.
func headerPartition(header []byte) ([]byte, error) {
	if len(header) == 0 {
		return nil, nil
	}
	var fields map[string]any
	if json.Unmarshal(header, &fields) != nil || fields == nil {
		return nil, fatal(codeInvalidHeader, "PUB_EXT header is not a JSON object")
	}
	if _, traced := fields[headerTrace]; traced {
		return nil, fatal(codeExtNotSupported, "PUB_EXT %s is not supported", headerTrace)
	}
	if key, ok := fields[headerKey].(string); ok {
		return []byte(key), nil
	}
	return nil, nil
}

// extendedLocked writes a message with what the client asked for between the id
// and the body.
func (o *output) extendedLocked(d *edge.Delivery) error {
	var extra []byte
	if o.format.extended {
		extra = appendExtension(extra, d, o.format.ordered)
	}
	if o.format.ordered { // where the fork has a byte offset and a size on disk
		extra = binary.BigEndian.AppendUint64(extra, uint64(d.Message.Seq))
		extra = binary.BigEndian.AppendUint32(extra, uint32(len(d.Message.Body)))
	}
	h := o.headLocked(d, len(extra))
	if err := o.writeLocked(h, extra); err != nil {
		return err
	}
	return o.writeLocked(nil, d.Message.Body)
}

// appendExtension writes the kind of the header, its length and the header.
func appendExtension(b []byte, d *edge.Delivery, ordered bool) []byte {
	header := d.Message.Header
	if ordered {
		header = withEpoch(header, uint64(d.Epoch))
	}
	if len(header) == 0 || len(header) > queue.MaxMessageHeader {
		return append(b, extNone)
	}
	b = append(b, extJSON)
	b = binary.BigEndian.AppendUint16(b, uint16(len(header)))
	return append(b, header...)
}

// withEpoch puts the fencing token in front of a JSON object's fields.
func withEpoch(header []byte, epoch uint64) []byte {
	b := strconv.AppendUint([]byte("{"+epochField), epoch, 10)
	if len(header) < 2 || header[0] != '{' {
		return append(b, '}')
	}
	rest := header[1:]
	if i := firstOf(rest); i < len(rest) && rest[i] != '}' {
		b = append(b, ',')
	}
	return append(b, rest...)
}

// firstOf passes over the white space that JSON allows.
func firstOf(b []byte) int {
	i := 0
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}
