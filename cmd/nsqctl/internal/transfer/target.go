package transfer

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/time/rate"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
)

const (
	copyBatch      = 500              // the default number of messages of one put, which may be there twice after a failure
	copyBatchBytes = 1 << 20          // bounds a put; the default limit of a broker is 5 MiB
	topicWait      = 15 * time.Second // how long a created topic may take to be in every broker's view
	// electionWait is how long import waits for the leader of a partition. A topic that was just created has none yet.
	electionWait = 15 * time.Second
)

// readChannels reads the durable channels of a topic with their positions and policies.
func readChannels(ctx context.Context, c *brokerapi.Client, topic string) ([]msgstream.Channel, error) {
	views, err := c.Channels(ctx, topic)
	if err != nil {
		return nil, err
	}
	positions, err := channelPositions(ctx, c, topic)
	if err != nil {
		return nil, err
	}
	var all []msgstream.Channel
	for _, x := range views {
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
	return msgstream.Position{Partition: p.Partition, Confirmed: uint64(p.Confirmed), Deferred: p.Deferred}
}

// errFewerPartitions means that the target's topic cannot take the copies.
var errFewerPartitions = errors.New("has too few partitions at the target")

// ensureCopy creates the topic that receives copies, unless it exists, and waits until it is in the
// brokers' view. A topic with fewer partitions than the source is refused.
func ensureCopy(ctx context.Context, c *brokerapi.Client, topic string, partitions int, ordered bool) (api.TopicView, error) {
	for deadline := time.Now().Add(topicWait); ; {
		_, view, there, err := c.Topic(ctx, topic)
		switch {
		case err != nil:
			return view, err
		case there && len(view.Partitions) < partitions:
			return view, fmt.Errorf("topic %s %w: %s, and %d at the source (nsqctl topic partitions)", topic, errFewerPartitions, api.Count(len(view.Partitions), "partition"), partitions)
		case there:
			return view, nil
		case time.Now().After(deadline):
			return view, fmt.Errorf("the target does not list topic %s, which was created", topic)
		}
		q := url.Values{"topic": {topic}, "partitions": {strconv.Itoa(partitions)}}
		if ordered {
			q.Set("ordered", "true")
		}
		if err := c.PostAny(ctx, "/topic/create", q, nil); err != nil {
			return view, err
		}
		if !concurrency.Sleep(ctx, 50*time.Millisecond) {
			return view, ctx.Err()
		}
	}
}

// ensureCopiedChannel creates a channel that begins with the first message of the topic, with the
// pause and the policy of the source, unless it exists.
func ensureCopiedChannel(ctx context.Context, c *brokerapi.Client, topic string, ch msgstream.Channel) (created bool, err error) {
	q := url.Values{"from": {"earliest"}}
	if ch.Ordered {
		q.Set("ordered", "true")
	}
	if created, err = c.CreateChannel(ctx, topic, ch.Name, q); !created {
		return false, err
	}
	if ch.Policy != nil {
		if err := c.PostAny(ctx, "/v1/channel/policy", policyArguments(topic, ch.Name, *ch.Policy), nil); err != nil {
			return true, err
		}
	}
	if ch.Paused {
		err = c.PostAny(ctx, "/channel/pause", url.Values{"topic": {topic}, "channel": {ch.Name}}, nil)
	}
	return true, err
}

// policyArguments are those of POST /v1/channel/policy.
func policyArguments(topic, channel string, p option.PolicyView) url.Values {
	q := url.Values{"topic": {topic}, "channel": {channel}, "max_attempts": {fmt.Sprint(p.MaxAttempts)}}
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

const finishSpans = 200 // bounds the spans of one request

// finishCopies finishes copies for a channel of the target. The leader of the partition leaves a channel that
// has consumers as it is, and keeps the messages that the channel has delivered and deferred.
func finishCopies(ctx context.Context, c *brokerapi.Client, topic string, id ident.TopicID, x api.ChannelPosition, spans []api.SequenceSpan) (all api.FinishedElsewhere, err error) {
	for part := range slices.Chunk(spans, finishSpans) {
		q := url.Values{"topic": {topic}, "topic_id": {id.String()}, "channel": {x.Channel}, "partition": {strconv.Itoa(x.Partition)}}
		for _, s := range part {
			q.Add("span", fmt.Sprintf("%d-%d", s.From, s.To))
		}
		var done api.FinishedElsewhere
		if err := c.PostAny(ctx, "/v1/channel/finish", q, &done); err != nil {
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

// copyBatcher gathers the messages of one put, at most `most` of one partition.
type copyBatcher struct {
	most     int
	put      func(messages []msgstream.Message, bytes int) error
	messages []msgstream.Message
	bytes    int
}

// add adds a copy of a message. It publishes the earlier ones if it does not fit.
func (b *copyBatcher) add(m *msgstream.Message) error {
	size := len(m.Body) + len(m.Header)
	if n := len(b.messages); n > 0 && (n >= b.most || b.messages[0].Partition != m.Partition || b.bytes+size > copyBatchBytes) {
		if err := b.flush(); err != nil {
			return err
		}
	}
	x := *m
	x.Body, x.Header = slices.Clone(m.Body), slices.Clone(m.Header)
	b.messages = append(b.messages, x)
	b.bytes += size
	return nil
}

func (b *copyBatcher) flush() error {
	if len(b.messages) == 0 {
		return nil
	}
	err := b.put(b.messages, b.bytes)
	b.messages, b.bytes = nil, 0
	return err
}

// copyOptions are the settings that import and mirror share.
type copyOptions struct {
	batch, rate  int
	noChannels   bool
	messageLimit *rate.Limiter // set by valid
}

func (o *copyOptions) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.noChannels, "without-channels", false, "create and move no channels")
	f.IntVar(&o.batch, "batch", copyBatch, "largest number of messages of one put of a partition")
	f.IntVar(&o.rate, "max-rate", 0, "messages a second over all topics; 0: no limit")
}

func (o *copyOptions) valid() error {
	if o.batch < 1 || o.rate < 0 {
		return cli.Usage("--batch must be at least 1, --max-rate at least 0")
	}
	o.messageLimit = limiter(o.rate, o.batch)
	return nil
}

// limiter limits a rate per second; 0: no limit.
func limiter(perSecond, burst int) *rate.Limiter {
	if perSecond == 0 {
		return rate.NewLimiter(rate.Inf, burst)
	}
	return rate.NewLimiter(rate.Limit(perSecond), max(perSecond, burst))
}

var errNoTopic = errors.New("the topic was deleted")

// partitionLog is the log of one partition, of a source or of a target. Another topic of the name is answered like one that
// does not exist (gone).
type partitionLog struct {
	client    *brokerapi.Client
	topic     string
	id        ident.TopicID
	partition int
}

type logPage struct {
	Start    uint64 // the first message that the log has
	End      uint64 // after the last committed message
	Next     uint64 // where the following page begins
	Messages []msgstream.Message
	// Mark and NextMark identify the log up to the place that was asked for, and up to Next (api.Peeked).
	Mark, NextMark string
}

func (l partitionLog) leader(ctx context.Context) (string, error) {
	_, topic, there, err := l.client.Topic(ctx, l.topic)
	switch {
	case err != nil:
		return "", err
	case !there:
		return "", fmt.Errorf("%w: %s", errNoTopic, l.topic)
	}
	i := slices.IndexFunc(topic.Partitions, func(p api.PartitionView) bool { return p.Partition == l.partition })
	if i < 0 || topic.Partitions[i].Leader == "" {
		return "", fmt.Errorf("partition %d of %s has no leader", l.partition, l.topic)
	}
	return string(topic.Partitions[i].Leader), nil
}

// read reads a page, from a place as of `nsqctl peek`; at the replica of the leader if that is named, else at any.
func (l partitionLog) read(ctx context.Context, from, leader string, limit int) (logPage, error) {
	q := url.Values{"topic": {l.topic}, "topic_id": {l.id.String()}, "partition": {fmt.Sprint(l.partition)}, "from": {from}, "limit": {fmt.Sprint(limit)}}
	if leader != "" {
		q.Set("node", leader)
		q.Set("leader", "true")
	}
	var answer api.Peeked
	if err := l.client.GetAny(ctx, "/v1/topic/peek", q, &answer); err != nil {
		return logPage{}, err
	}
	page := logPage{Start: uint64(answer.Start), End: uint64(answer.End), Next: uint64(answer.Next), Mark: answer.Mark, NextMark: answer.NextMark}
	for i := range answer.Messages {
		x := &answer.Messages[i]
		m := msgstream.Message{Partition: uint16(l.partition), Sequence: uint64(x.Sequence), TimeNS: x.Time, DeliverAtNS: x.DeliverAt, Trace: x.Trace, Header: x.Header, Body: x.Bytes}
		if len(x.HeaderBytes) > 0 {
			m.Header = x.HeaderBytes
		}
		if x.Bytes == nil {
			m.Body = []byte(x.Body)
		}
		page.Messages = append(page.Messages, m)
	}
	return page, nil
}

// page reads a page at the leader: no other replica is as new.
func (l partitionLog) page(ctx context.Context, from string, limit int) (logPage, error) {
	leader, err := l.leader(ctx)
	if err != nil {
		return logPage{}, err
	}
	return l.read(ctx, from, leader, limit)
}

// pageWithin is page. It repeats a failed request until ctx ends, or patience has passed.
func (l partitionLog) pageWithin(ctx context.Context, from string, limit int, patience time.Duration) (page logPage, err error) {
	err = within(ctx, patience, func() error {
		page, err = l.page(ctx, from, limit)
		return err
	})
	return page, err
}

// repeat repeats a request until it succeeds, a broker refuses it permanently, or ctx ends; report receives the other errors.
func repeat(ctx context.Context, pause time.Duration, report func(error), try func() error) error {
	for {
		err := try()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil, brokerapi.Refused(err):
			return err
		}
		report(err)
		if !concurrency.Sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// within is repeat without reports; it also ends when the topic is gone, or patience has passed.
func within(ctx context.Context, patience time.Duration, try func() error) error {
	for deadline := time.Now().Add(patience); ; {
		err := try()
		if err == nil || brokerapi.Refused(err) || errors.Is(err, errNoTopic) || time.Now().After(deadline) {
			return err
		}
		if !concurrency.Sleep(ctx, 200*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// message reads one message, at the replica of the leader if that is named; false if the log does not have it.
func (l partitionLog) message(ctx context.Context, sequence uint64, leader string) (m msgstream.Message, there bool, err error) {
	if leader == "" {
		if leader, err = l.leader(ctx); err != nil {
			return m, false, err
		}
	}
	page, err := l.read(ctx, fmt.Sprint(sequence), leader, 1)
	if err != nil || len(page.Messages) == 0 || page.Messages[0].Sequence != sequence {
		return m, false, err
	}
	return page.Messages[0], true, nil
}

func channelPositions(ctx context.Context, c *brokerapi.Client, topic string) ([]api.ChannelPosition, error) {
	return brokerapi.List[api.ChannelPosition](ctx, c, "/v1/topic/positions", url.Values{"topic": {topic}}, "positions")
}
