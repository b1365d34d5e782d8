package transfer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/copier"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
)

const (
	// copyBatch is the default number of messages of one put, which may be there twice after a failure.
	copyBatch = 500
	// copyBatchBytes bounds a put; the default limit of a broker is 5 MiB.
	copyBatchBytes = 1 << 20
	// topicWait is how long a created topic may take to be in every broker's view.
	topicWait = 15 * time.Second
)

// readChannels reads the durable channels of a topic with their positions and policies.
func readChannels(ctx context.Context, c *brokerapi.Client, topic string) ([]msgstream.Channel, error) {
	var v struct {
		Channels []api.ChannelView `json:"channels"`
	}
	if err := c.GetAny(ctx, "/v1/topic/channels", url.Values{"topic": {topic}}, &v); err != nil {
		return nil, err
	}
	positions, err := copier.Positions(ctx, c, topic)
	if err != nil {
		return nil, err
	}
	var all []msgstream.Channel
	for _, x := range v.Channels {
		ch := msgstream.Channel{Name: x.Channel, Ordered: x.Ordered, Paused: x.Paused, Policy: &option.PolicyView{}}
		if err := c.GetAny(ctx, "/v1/channel/policy", url.Values{"topic": {topic}, "channel": {x.Channel}}, ch.Policy); err != nil {
			return nil, err
		}
		ch.Policy.Owner = ""
		if *ch.Policy == (option.PolicyView{}) {
			ch.Policy = nil
		}
		for _, p := range positions {
			if p.Channel == x.Channel {
				ch.Positions = append(ch.Positions, positionOf(p))
			}
		}
		all = append(all, ch)
	}
	return all, nil
}

func positionOf(p api.ChannelPosition) msgstream.Position {
	at := msgstream.Position{Partition: p.Partition, Confirmed: uint64(p.Confirmed)}
	for _, d := range p.Deferred {
		at.Deferred = append(at.Deferred, msgstream.Deferred{Sequence: uint64(d.Sequence), DeadlineNS: d.DeadlineNS, Attempts: d.Attempts})
	}
	return at
}

// errFewerPartitions means that the target's topic cannot take the copies.
var errFewerPartitions = errors.New("has too few partitions at the target")

// ensureCopy creates the topic that receives copies, unless it exists, and waits until it is in the
// brokers' view. A topic with fewer partitions than the source is refused.
func ensureCopy(ctx context.Context, c *brokerapi.Client, topic string, partitions int, ordered bool) (api.TopicView, error) {
	for deadline := time.Now().Add(topicWait); ; {
		_, view, there, err := copier.Topic(ctx, c, topic)
		switch {
		case err != nil:
			return view, err
		case there && len(view.Partitions) < partitions:
			return view, fmt.Errorf("topic %s %w: %d partitions, and %d at the source (nsqctl topic partitions)", topic, errFewerPartitions, len(view.Partitions), partitions)
		case there:
			return view, nil
		case time.Now().After(deadline):
			return view, fmt.Errorf("the target does not list topic %s, which was created", topic)
		}
		q := url.Values{"topic": {topic}, "partitions": {strconv.Itoa(partitions)}}
		if ordered {
			q.Set("ordered", "true")
		}
		if _, err := c.CallAny(ctx, http.MethodPost, "/topic/create", q); err != nil {
			return view, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return view, ctx.Err()
		}
	}
}

// ensureCopiedChannel creates a channel that begins with the first message of the topic, with the
// pause and the policy of the source, unless it exists.
func ensureCopiedChannel(ctx context.Context, c *brokerapi.Client, topic string, ch msgstream.Channel) (created bool, err error) {
	var v struct {
		Channels []api.ChannelView `json:"channels"`
	}
	if err := c.GetAny(ctx, "/v1/topic/channels", url.Values{"topic": {topic}}, &v); err != nil {
		return false, err
	}
	if slices.ContainsFunc(v.Channels, func(x api.ChannelView) bool { return x.Channel == ch.Name }) {
		return false, nil
	}
	q := url.Values{"topic": {topic}, "channel": {ch.Name}, "from": {"earliest"}}
	if ch.Ordered {
		q.Set("ordered", "true")
	}
	if _, err := c.CallAny(ctx, http.MethodPost, "/channel/create", q); err != nil {
		return false, err
	}
	name := url.Values{"topic": {topic}, "channel": {ch.Name}}
	if ch.Policy != nil {
		if _, err := c.CallAny(ctx, http.MethodPost, "/v1/channel/policy", policyArguments(name, *ch.Policy)); err != nil {
			return true, err
		}
	}
	if ch.Paused {
		if _, err := c.CallAny(ctx, http.MethodPost, "/channel/pause", name); err != nil {
			return true, err
		}
	}
	return true, nil
}

// policyArguments are those of POST /v1/channel/policy.
func policyArguments(name url.Values, p option.PolicyView) url.Values {
	q := url.Values{"topic": name["topic"], "channel": name["channel"], "max_attempts": {fmt.Sprint(p.MaxAttempts)}}
	if p.DeadLetterTopic != "" {
		q.Set("dead_letter_topic", p.DeadLetterTopic)
	}
	if p.BackoffMS > 0 {
		q.Set("retry_backoff", fmt.Sprintf("%dms,%g,%dms,%g", p.BackoffMS, p.BackoffFactor, p.BackoffMaxMS, p.BackoffJitter))
	}
	if p.Filter != "" {
		q.Set("filter", p.Filter)
	}
	return q
}

// finishSpans bounds the spans of one request.
const finishSpans = 200

// finishCopies finishes copies for a channel of the target. The leader of the partition leaves a channel that
// has consumers as it is, and keeps the messages that the channel has delivered and deferred.
func finishCopies(ctx context.Context, c *brokerapi.Client, topic string, id ident.TopicID, x api.ChannelPosition, spans []api.SequenceSpan) (all api.FinishedElsewhere, err error) {
	for part := range slices.Chunk(spans, finishSpans) {
		q := url.Values{"topic": {topic}, "topic_id": {id.String()}, "channel": {x.Channel}, "partition": {strconv.Itoa(x.Partition)}}
		for _, s := range part {
			q.Add("span", fmt.Sprintf("%d-%d", s.From, s.To))
		}
		answer, err := c.CallAny(ctx, http.MethodPost, "/v1/channel/finish", q)
		if err != nil {
			return all, err
		}
		var done api.FinishedElsewhere
		if err := brokerapi.Decode(answer, "/v1/channel/finish", &done); err != nil {
			return all, err
		}
		all.Finished += done.Finished
		all.Kept += done.Kept
		if all.Stays = done.Stays; all.Stays {
			break
		}
	}
	return all, nil
}

// readPage reads a page of a partition at its leader. It repeats a failed request until ctx ends, or
// `patience` has passed.
func readPage(ctx context.Context, c *brokerapi.Client, topic string, id ident.TopicID, partition int, from string, limit int, patience time.Duration) (copier.Page, error) {
	deadline := time.Now().Add(patience)
	for {
		page, err := readAtLeader(ctx, c, topic, id, partition, from, limit)
		if err == nil || ctx.Err() != nil || copier.Refused(err) || errors.Is(err, errNoTopic) || time.Now().After(deadline) {
			return page, err
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return page, ctx.Err()
		}
	}
}

// errNoTopic means that a topic is gone.
var errNoTopic = errors.New("the topic was deleted")

func readAtLeader(ctx context.Context, c *brokerapi.Client, topic string, id ident.TopicID, partition int, from string, limit int) (copier.Page, error) {
	_, view, there, err := copier.Topic(ctx, c, topic)
	if err != nil {
		return copier.Page{}, err
	}
	if !there || view.ID != id {
		return copier.Page{}, fmt.Errorf("%w: %s", errNoTopic, topic)
	}
	for _, p := range view.Partitions {
		if p.Partition == partition && p.Leader != "" {
			return copier.Read(ctx, c, topic, id, partition, from, string(p.Leader), limit)
		}
	}
	return copier.Page{}, fmt.Errorf("partition %d of %s has no leader", partition, topic)
}
