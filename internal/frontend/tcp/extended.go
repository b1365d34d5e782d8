package tcp

import (
	"bytes"
	"context"
	"encoding/binary"
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
	if fenced { // it only grows: external storage can refuse writes with an older one
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
	if len(params) > 1 { // an invalid start, or a parameter behind it
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

// lastSecond is the end of the year 9999, in seconds: the current time in milliseconds is beyond it.
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

// extFilter is the filter that a client of the replicated fork requests in IDENTIFY. There it is a setting of the
// consumer, and the messages that no consumer of a channel takes stay. Here it is a setting of the channel, so that
// consumers of one channel do not finish each other's messages. A client may subscribe to a channel that has the filter
// it requests; any other SUB is refused, and the connection stays.
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

// filter returns the requested filter as a channel's policy has it; "": none. refused says why no channel can have it.
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
