package admin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/nsqd"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// deadLetterChannel retains the messages of a dead-letter topic until they are moved back.
const deadLetterChannel = nsqd.RedriveChannel

const (
	// redriveIdle is how long a redrive continues without receiving a dead letter. A partition that was slow to send
	// its first message gets a share of RDY again after a second.
	redriveIdle  = 1500 * time.Millisecond
	redriveBurst = 256     // dead letters that are moved together
	redriveHeld  = 1 << 15 // dead letters of other channels that a redrive skips and requeues at its end
)

// redriver moves dead letters back.
type redriver struct {
	*records
	channels  *Channels
	directory directory
	gateway   gateway
}

// Redrive moves up to limit messages of a channel back from its dead-letter topic: it publishes each to its topic
// again, visible to that channel only, and then finishes the dead letter. It returns the number of messages. A message
// that was published and not finished is recognised when it is moved again within the dedupe window. A message that
// fails again is another dead letter, and can be moved back at once.
func (r *redriver) Redrive(ctx context.Context, topic, channel string, limit int) (int, error) {
	t, ok := r.catalog.Topic(topic)
	if !ok {
		return 0, outcome.ErrTopicNotFound
	}
	if err := r.learnChannel(ctx, topic, channel); err != nil {
		return 0, err
	}
	c, ok := r.catalog.Channels(t.ID)[channel]
	if !ok {
		return 0, outcome.ErrChannelNotFound
	}
	if c.Policy.DeadLetterTopic == "" {
		return 0, fmt.Errorf("%w: channel %s has no dead_letter_topic", outcome.ErrInvalid, channel)
	}
	if err := r.channels.EnsureDeadLetters(ctx, c.Policy.DeadLetterTopic); err != nil {
		return 0, err
	}
	sub, err := r.gateway.Subscribe(ctx, api.SubscribeRequest{
		Topic: c.Policy.DeadLetterTopic, Channel: deadLetterChannel, Partition: -1,
		Client: func() api.ClientStats { return api.ClientStats{ClientID: deadLetterChannel} },
	})
	if err != nil {
		return 0, err
	}
	defer sub.Close(true) // requeues the messages of other channels
	run := redrive{redriver: r, sub: sub, topic: topic, channel: channel, letters: c.Policy.DeadLetterTopic}
	if run.leaders, err = run.served(ctx); err != nil {
		return 0, err
	}
	return run.run(ctx, limit)
}

// redrive is one run of a redrive, from its request to its end.
type redrive struct {
	*redriver
	sub            api.Subscription
	topic, channel string
	letters        string               // the dead-letter topic
	leaders        []catalog.Leadership // of its partitions, as of the last query
	held           int                  // messages of other channels
}

func (r *redrive) run(ctx context.Context, limit int) (moved int, err error) {
	idle := time.NewTimer(redriveIdle)
	defer idle.Stop()
	var got []api.Delivery
	for moved < limit && r.held < redriveHeld {
		r.sub.SetReady(2 * len(r.leaders) * (r.held + redriveBurst)) // each partition's share is at least half of an equal share
		got = r.sub.Pull(min(redriveBurst, limit-moved), got[:0])
		if len(got) == 0 {
			select {
			case <-r.sub.Wake():
				continue
			case <-idle.C:
				if none, err := r.none(ctx); none || err != nil {
					return moved, err
				}
				idle.Reset(redriveIdle)
			case <-ctx.Done():
				return moved, ctx.Err()
			}
		}
		idle.Reset(redriveIdle)
		n, err := r.move(ctx, got)
		if moved += n; err != nil {
			return moved, err
		}
	}
	if moved < limit {
		return moved, fmt.Errorf("%w: the next ones are behind %d messages of other channels; repeat the request", outcome.ErrUnavailable, r.held)
	}
	return moved, nil
}

// none reports whether no dead letter is left: nothing arrived while the same leaders served the topic.
func (r *redrive) none(ctx context.Context) (bool, error) {
	before, err := r.leaders, error(nil)
	r.leaders, err = r.served(ctx)
	return slices.Equal(before, r.leaders), err
}

// served returns the leaders of the dead-letter topic, if they serve it.
func (r *redrive) served(ctx context.Context) (leaders []catalog.Leadership, err error) {
	t, ok := r.catalog.Topic(r.letters)
	if !ok {
		return nil, outcome.ErrTopicNotFound
	}
	for n := range t.Partitions {
		l, _ := r.directory.Leader(t.Partition(n))
		leaders = append(leaders, l)
	}
	_, err = r.channels.Deferred(ctx, r.letters, deadLetterChannel, 1)
	return leaders, err
}

// move publishes the messages of this channel again.
func (r *redrive) move(ctx context.Context, got []api.Delivery) (moved int, err error) {
	var messages []queue.Message
	var numbers []int
	var ids []api.MessageID
	for _, d := range got {
		from, ok := nsqd.DecodeDeadLetter(d.Message.Header)
		if !ok || from.Topic != r.topic || from.Channel != r.channel {
			r.held++
			continue
		}
		messages = append(messages, queue.Message{
			Body: d.Message.Body, Header: from.Redriven(), Trace: d.Message.Trace,
			Identity: queue.IdentityOfCopy(queue.CopyRedrive, queue.Source{Topic: d.Partition.Topic, Partition: d.Partition.Number, Sequence: d.Message.Seq, Channel: r.channel, TimeNS: d.Message.Time}),
		})
		numbers = append(numbers, r.partition(from))
		ids = append(ids, d.ID)
	}
	var failed []error
	for i, err := range r.gateway.PublishAll(ctx, r.topic, numbers, messages) {
		if err == nil {
			err = r.sub.Finish(ids[i])
			moved++
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	if failed == nil {
		return moved, nil
	}
	return moved, fmt.Errorf("%w: not moved, or moved and not finished: %s: %w", outcome.ErrUnavailable, api.Count(len(failed), "message"), failed[0])
}

// partition is the original partition, to which a message with a key must return; -1: the original was in an earlier
// topic of this name.
func (r *redrive) partition(from nsqd.DeadLetterHeader) int {
	var id api.MessageID
	copy(id[:], from.ID)
	t, _ := r.catalog.Topic(r.topic)
	if place, ok := api.ParseMessageID(id); ok && place.Nonce == api.NonceOf(t.ID) {
		return int(place.Partition)
	}
	return -1
}
