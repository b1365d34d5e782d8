package coordinator

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

// redriveChannel is the channel of a dead-letter topic that keeps everything
// until it is moved back.
const redriveChannel = "redrive"

// maxBackoff bounds the numbers of a backoff.
const maxBackoff = 30 * 24 * time.Hour

// readPolicy reads max_attempts, dead_letter_topic and retry_backoff over what
// the channel has. Empty arguments clear their part.
func readPolicy(p meta.ChannelPolicy, topic string, args map[string]string) (meta.ChannelPolicy, error) {
	bad := func(format string, a ...any) (meta.ChannelPolicy, error) {
		return p, fmt.Errorf("%w: "+format, append([]any{edge.ErrInvalid}, a...)...)
	}
	if text, ok := args["max_attempts"]; ok {
		n, err := strconv.ParseUint("0"+text, 10, 16)
		if err != nil {
			return bad("max_attempts must be 0 to 65535")
		}
		p.MaxAttempts = uint16(n)
	}
	if name, ok := args["dead_letter_topic"]; ok {
		p.DeadLetterTopic = name
	}
	if text, ok := args["retry_backoff"]; ok {
		b, err := readBackoff(text)
		if err != nil {
			return p, err
		}
		p.Backoff = b
	}
	switch {
	case p.DeadLetterTopic != "" && !edge.ValidName(p.DeadLetterTopic):
		return bad("%q is no name of a topic", p.DeadLetterTopic)
	case p.MaxAttempts > 0 && p.DeadLetterTopic == "":
		return bad("max_attempts needs a dead_letter_topic")
	case p.DeadLetterTopic == topic:
		return bad("the dead_letter_topic must be another topic")
	}
	return p, nil
}

// readBackoff reads "base[,factor[,max[,jitter]]]", such as 1s,2,5m,0.2.
func readBackoff(text string) (b meta.Backoff, err error) {
	if text == "" {
		return b, nil
	}
	parts := append(strings.Split(text, ","), "", "", "")
	base, err := time.ParseDuration(parts[0])
	b.BaseMS, b.Factor = base.Milliseconds(), 2
	if err == nil && parts[1] != "" {
		b.Factor, err = strconv.ParseFloat(parts[1], 64)
	}
	if err == nil && parts[2] != "" {
		var most time.Duration
		most, err = time.ParseDuration(parts[2])
		b.MaxMS = most.Milliseconds()
	}
	if err == nil && parts[3] != "" {
		b.Jitter, err = strconv.ParseFloat(parts[3], 64)
	}
	limit := maxBackoff.Milliseconds()
	if err != nil || len(parts) > 7 || b.BaseMS < 0 || b.BaseMS > limit || b.MaxMS < 0 || b.MaxMS > limit ||
		!(b.Factor >= 1 && b.Factor <= 100) || !(b.Jitter >= 0 && b.Jitter <= 1) {
		return meta.Backoff{}, fmt.Errorf("%w: retry_backoff must be base[,factor[,max[,jitter]]], such as 1s,2,5m,0.2", edge.ErrInvalid)
	}
	return b, nil
}

// setPolicy changes a channel's policy. Its dead-letter topic is made, with the
// channel that keeps what comes there. The leaders follow by the watch.
func (b *Broker) setPolicy(ctx context.Context, op edge.AdminOp) error {
	t, ok := b.catalog.topic(op.Topic)
	if !ok {
		return edge.ErrTopicNotFound
	}
	c, err := b.editChannel(ctx, t.ID, op.Channel, func(c *meta.ChannelState) (err error) {
		if c.Policy, err = readPolicy(c.Policy, op.Topic, op.Args); err != nil {
			return err
		}
		if d := c.Policy.DeadLetterTopic; d != "" {
			return b.keepLetters(ctx, d)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.awaitChannel(ctx, t.ID, op.Channel, c.Revision)
}

// Policy is what a channel's key says (edge.Channels).
func (b *Broker) Policy(topic, channel string) (edge.ChannelPolicy, error) {
	t, ok := b.catalog.topic(topic)
	if !ok {
		return edge.ChannelPolicy{}, edge.ErrTopicNotFound
	}
	c, ok := b.catalog.channels(t.ID)[channel]
	if !ok {
		return edge.ChannelPolicy{}, edge.ErrChannelNotFound
	}
	p := c.Policy
	return edge.ChannelPolicy{
		MaxAttempts: p.MaxAttempts, DeadLetterTopic: p.DeadLetterTopic,
		BackoffMS: p.Backoff.BaseMS, BackoffFactor: p.Backoff.Factor, BackoffMaxMS: p.Backoff.MaxMS, BackoffJitter: p.Backoff.Jitter,
	}, nil
}

// policyOf is what a channel's key says, as its queue needs it.
func (b *Broker) policyOf(t ident.TopicID, channel string) nsqd.Policy {
	p := b.catalog.channels(t)[channel].Policy
	return nsqd.Policy{MaxAttempts: p.MaxAttempts, Backoff: nsqd.Backoff{
		BaseMS: p.Backoff.BaseMS, MaxMS: p.Backoff.MaxMS, Factor: p.Backoff.Factor, Jitter: p.Backoff.Jitter,
	}}
}

// tellPolicies hands a topic's policies to the channels hosted here.
func (b *Broker) tellPolicies(t ident.TopicID) {
	topic, _ := b.catalog.name(t)
	state, _ := b.catalog.record(topic)
	for _, h := range b.hostedOf(state) {
		for _, name := range h.queue.Channels() {
			if c, ok := h.queue.Channel(name); ok {
				c.SetPolicy(b.policyOf(t, name))
			}
		}
	}
}
