package tcp

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
)

// subscribeOrdered: SUB_ORDERED <topic> <channel> [partition]\n. The channel has one message in flight for each
// partition.
func (c *conn) subscribeOrdered(ctx context.Context) error {
	const verb = "SUB_ORDERED"
	if c.sampleRate > 0 {
		return fatal(codeInvalid, "cannot %s with a sample rate", verb)
	}
	return c.attachPositioned(ctx, verb, api.SubscribeRequest{Ordered: true}, c.params[min(3, len(c.params)):])
}

// subscribeAdvanced: SUB_ADVANCED <topic> <channel> [partition] [type:value]\n. The start position applies only if the
// channel has no consumers.
func (c *conn) subscribeAdvanced(ctx context.Context) error {
	const verb = "SUB_ADVANCED"
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

// attachPositioned subscribes to messages with their position, of one partition if params name it.
func (c *conn) attachPositioned(ctx context.Context, verb string, r api.SubscribeRequest, params [][]byte) error {
	r.Partition = -1
	if len(params) > 0 && string(params[0]) != "-1" {
		n, err := strconv.ParseUint(string(params[0]), 10, 10) // unlike decimal: an empty string is refused
		if err != nil {
			return fatal(codeBadPartition, "%s partition %q is not valid", verb, params[0])
		}
		r.Partition = int(n)
	}
	c.out.mu.Lock()
	c.out.format.positioned, c.out.format.fenced = true, r.Ordered
	c.out.mu.Unlock()
	return c.attach(ctx, verb, r)
}

// lastSecond is the end of the year 9999, in seconds: the present time in milliseconds is beyond it.
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
