package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// buryEvery is how often channels are asked for messages that failed too often.
const buryEvery = 50 * time.Millisecond

// deadLetter is the header of a message in a dead-letter topic: where it comes
// from.
type deadLetter struct {
	Topic    string          `json:"##original_topic"`
	Channel  string          `json:"##original_channel"`
	ID       string          `json:"##original_id"`
	TimeNS   int64           `json:"##original_time"` // of the put, unix ns
	Attempts uint16          `json:"##attempts"`
	Header   json.RawMessage `json:"##original_header,omitempty"`
}

// keepDead moves messages that failed too often from the channels led here to
// their dead-letter topics: first the replicated put, then the finish, so none
// is ever lost, and one may be there twice. Started by start, ends with the
// broker.
func (b *Broker) keepDead(ctx context.Context) {
	every(ctx, buryEvery, func() {
		if !b.dead.Swap(false) {
			return
		}
		for _, h := range b.hosted() {
			if !h.dead.Swap(false) || !h.Leading() {
				continue
			}
			if !h.burying.CompareAndSwap(false, true) {
				h.dead.Store(true)
				b.dead.Store(true)
				continue
			}
			b.background(func(ctx context.Context) {
				defer h.burying.Store(false)
				for _, name := range h.queue.Channels() {
					if c, ok := h.queue.Channel(name); ok {
						b.bury(ctx, h, c)
					}
				}
			})
		}
	})
}

// bury moves the dead messages of one channel, as far as they can be moved now.
func (b *Broker) bury(ctx context.Context, h *hosted, c *nsqd.Channel) {
	for dead := c.Dead(); len(dead) > 0 && b.move(ctx, h, c, dead); {
		dead = c.Dead()
	}
}

// move moves some dead messages together; false if not all could be.
func (b *Broker) move(ctx context.Context, h *hosted, c *nsqd.Channel, dead []edge.Delivery) (all bool) {
	to := b.catalog.channels(h.id.Topic)[c.Name()].Policy.DeadLetterTopic
	messages := make([]queue.Message, len(dead))
	for i, d := range dead {
		messages[i] = queue.Message{Body: d.Message.Body, Header: letterHeader(h.topic, c.Name(), d), Trace: d.Message.Trace}
	}
	var errs []error
	if err := b.keepLetters(ctx, to); err != nil {
		errs = slices.Repeat([]error{err}, len(dead))
	} else {
		errs = b.publishAll(ctx, to, nil, messages)
	}
	var failed, late []error
	for i, err := range errs {
		seq := dead[i].Message.Seq
		if err != nil {
			failed = append(failed, err)
			c.Exhumed(seq)
		} else if err := c.Buried(seq, dead[i].Epoch); err != nil {
			late = append(late, err)
		}
	}
	log := b.log.WithFields(fields(h)).WithField("channel", c.Name())
	if len(failed) > 0 {
		log.WithError(failed[0]).WithField("messages", len(failed)).Warn("cannot move dead messages yet")
	}
	if len(late) > 0 {
		log.WithError(late[0]).WithField("messages", len(late)).
			Info("dead messages were moved and come again: the channel has another leader")
	}
	return len(failed) == 0
}

// keepLetters makes a dead-letter topic, with the channel that keeps what comes
// there, unless they are there.
func (b *Broker) keepLetters(ctx context.Context, topic string) error {
	if topic == "" {
		return edge.ErrTopicNotFound
	}
	if err := b.CreateChannel(ctx, topic, redriveChannel, "", false); err != nil {
		return fmt.Errorf("dead-letter topic %s: %w", topic, err)
	}
	return nil
}

func letterHeader(topic, channel string, d edge.Delivery) []byte {
	h := deadLetter{Topic: topic, Channel: channel, ID: string(d.ID[:]), TimeNS: d.Message.Time, Attempts: d.Message.Attempts}
	if json.Valid(d.Message.Header) {
		h.Header = d.Message.Header
	}
	raw, _ := json.Marshal(h) // strings, numbers and valid JSON always marshal
	if len(raw) > queue.MaxMessageHeader {
		h.Header = nil
		raw, _ = json.Marshal(h)
	}
	return raw
}

// fate is an Answerer for one of several puts.
type fate chan error

// Answer implements edge.Answerer; capacity 1, called once.
func (f fate) Answer(r edge.PutResult) { f <- r.Err }

// publishAll puts messages to a topic, to partitions with these numbers (nil: to
// any), and waits for the fate of each.
func (b *Broker) publishAll(ctx context.Context, topic string, numbers []int, messages []queue.Message) []error {
	errs := make([]error, len(messages))
	fates := make([]fate, len(messages))
	for i, m := range messages {
		draft := queue.NewDraft(m.Size())
		errs[i] = draft.AddMessage(m)
		if errs[i] == nil {
			errs[i] = b.gateway.Admit(ctx, topic, draft.Size())
		}
		if errs[i] == nil {
			fates[i] = make(fate, 1)
			number := -1
			if numbers != nil {
				number = numbers[i]
			}
			b.gateway.PublishTo(topic, number, nil, draft.Draft(ident.RequestID{}), fates[i])
		}
	}
	for i, f := range fates {
		if f != nil {
			errs[i] = <-f // at the latest after the put limit, or at shutdown
		}
	}
	return errs
}
