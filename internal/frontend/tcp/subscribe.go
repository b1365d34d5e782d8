package tcp

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
)

// subscribe: SUB <topic> <channel>\n.
func (c *conn) subscribe(ctx context.Context, verb string) error {
	return c.attach(ctx, verb, api.SubscribeRequest{Partition: c.partitionAt(3)})
}

func (c *conn) attach(ctx context.Context, verb string, r api.SubscribeRequest) error {
	if c.state.Load() != stateInit {
		return fatal(codeInvalid, "cannot %s in current state", verb)
	}
	if c.heartbeat <= 0 {
		return fatal(codeInvalid, "cannot %s with heartbeats disabled", verb)
	}
	if len(c.params) < 3 {
		return fatal(codeInvalid, "%s insufficient number of parameters", verb)
	}
	topic, channel := string(c.params[1]), string(c.params[2])
	if !api.ValidName(topic) {
		return fatal(codeBadTopic, "%s topic name %q is not valid", verb, topic)
	}
	if !api.ValidName(channel) {
		return fatal(codeBadChannel, "%s channel name %q is not valid", verb, channel)
	}
	if err := c.authorize(ctx, "SUB", topic, channel); err != nil {
		return err
	}
	if c.unjudged != nil {
		return c.subscribeFailed(topic, channel, c.unjudged)
	}
	if c.noFilter != "" {
		return refusal(codeExtNotSupported, "%s %s", verb, c.noFilter)
	}
	r.Topic, r.Channel, r.Client, r.Filter = topic, channel, c.stats, c.filter
	r.MsgTimeoutMS, r.SampleRate = c.msgTimeout.Milliseconds(), c.sampleRate
	r.Memory = *c.share.Load()
	sub, err := c.h.backend.Subscribers.Subscribe(ctx, r)
	if err != nil {
		return c.subscribeFailed(topic, channel, err)
	}
	c.sub = sub
	c.attached.Store(&c.sub)
	c.consumes.Store(&subscribed{topic, channel, c.h.backend.Metrics.Wait(topic, channel)})
	c.state.Store(stateSubscribed)
	c.log().WithFields(logrus.Fields{"topic": topic, "channel": channel, "user_agent": c.about.Load().UserAgent, "hostname": c.about.Load().Hostname}).
		Info("client subscribed")
	return c.fifo.add(ctx, answer{text: responseOK, start: sub})
}

func (c *conn) subscribeFailed(topic, channel string, err error) error {
	if errors.Is(err, outcome.ErrFilter) { // the connection stays: the client may take another channel
		return refusal(codeExtNotSupported, "SUB %s: a filter is a setting of the channel (nsqctl channel policy %s %s --filter …)", err, topic, channel)
	}
	if errors.Is(err, outcome.ErrTooManyClients) {
		return fatal(codeSubFailed, "SUB failed consumers for %s:%s exceeds limit of %d",
			topic, channel, c.h.opts.MaxChannelConsumers)
	}
	code := codeSubFailed
	if errors.Is(err, outcome.ErrPartitionNotFound) {
		code = codeTopicNotExist
	}
	return fatal(code, "SUB failed %s", err)
}

// rdy: RDY [count]\n. The count is a window: the largest number of messages in flight.
func (c *conn) rdy(context.Context, string) error {
	switch c.state.Load() {
	case stateClosing:
		return nil
	case stateSubscribed:
	default:
		return fatal(codeInvalid, "cannot RDY in current state")
	}
	count := uint64(1)
	if len(c.params) > 1 {
		n, ok := decimal(c.params[1])
		if !ok {
			return fatal(codeInvalid, "RDY could not parse count %s", c.params[1])
		}
		count = n
	}
	if count > uint64(c.h.opts.MaxRdyCount) {
		return fatal(codeInvalid, "RDY count %s out of range 0-%d", c.params[1], c.h.opts.MaxRdyCount)
	}
	c.grant(int(count))
	return nil
}

func (c *conn) grant(n int) {
	c.ready.Store(int64(n))
	c.sub.SetReady(n)
	c.unsignalled = true
}

// startClose: CLS\n. The client may finish its messages before it closes.
func (c *conn) startClose(ctx context.Context, _ string) error {
	if !c.state.CompareAndSwap(stateSubscribed, stateClosing) {
		return fatal(codeInvalid, "cannot CLS in current state")
	}
	c.grant(0)
	return c.respond(ctx, responseCloseWait)
}

// finish: FIN <id>\n.
func (c *conn) finish(_ context.Context, verb string) error {
	id, err := c.messageID(verb, 2)
	if err != nil {
		return err
	}
	return c.done(verb, id, c.sub.Finish(id), &c.finished)
}

// requeue: REQ <id> <timeout_ms>\n. A timeout beyond the limit is clamped.
func (c *conn) requeue(_ context.Context, verb string) error {
	id, err := c.messageID(verb, 3)
	if err != nil {
		return err
	}
	ms, ok := decimal(c.params[2])
	if !ok {
		return fatal(codeInvalid, "REQ could not parse timeout %s", c.params[2])
	}
	ms = min(ms, uint64(c.h.opts.MaxReqTimeout/time.Millisecond))
	return c.done(verb, id, c.sub.Requeue(id, int64(ms)), &c.requeued)
}

// touch: TOUCH <id>\n.
func (c *conn) touch(_ context.Context, verb string) error {
	id, err := c.messageID(verb, 2)
	if err != nil {
		return err
	}
	if err := c.sub.Touch(id); err != nil {
		return failed(verb, id, err)
	}
	return nil
}

// done counts a message that is no longer in flight. The writer is woken when the burst of commands is over. The
// connection stays open after an error.
func (c *conn) done(verb string, id api.MessageID, err error, count *atomic.Uint64) error {
	if err != nil {
		return failed(verb, id, err)
	}
	count.Add(1)
	if c.starved.Load() {
		c.unsignalled = true
	}
	return nil
}

func (c *conn) messageID(verb string, params int) (id api.MessageID, err error) {
	if s := c.state.Load(); s != stateSubscribed && s != stateClosing {
		return id, fatal(codeInvalid, "cannot %s in current state", verb)
	}
	if len(c.params) < params {
		return id, fatal(codeInvalid, "%s insufficient number of params", verb)
	}
	if len(c.params[1]) != len(id) {
		return id, fatal(codeInvalid, "invalid message ID")
	}
	copy(id[:], c.params[1])
	return id, nil
}

func failed(verb string, id api.MessageID, err error) error {
	return &commandError{text: failedText(verb, id[:], err), open: true}
}

// failedText has NSQ's wording of the error, without the text of its wrappers.
func failedText(verb string, id []byte, err error) string {
	reason := err.Error()
	if row, ok := outcome.Find(err, outcome.OfFinishes); ok {
		reason = row.Err.Error()
	}
	return "E_" + verb + "_FAILED " + verb + " " + string(id) + " failed " + reason
}
