package transfer

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// errNoTopic means that a topic does not exist.
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
	End      uint64 // behind the last committed one
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
	page := logPage{
		Start: uint64(answer.Start), End: uint64(answer.End), Next: uint64(answer.Next), Mark: answer.Mark, NextMark: answer.NextMark,
		Messages: make([]msgstream.Message, len(answer.Messages)),
	}
	for i := range answer.Messages {
		x := &answer.Messages[i]
		page.Messages[i] = msgstream.Message{
			Partition: uint16(l.partition), Sequence: uint64(x.Sequence), TimeNS: x.Time, DeliverAtNS: x.DeliverAt, Trace: x.Trace, Header: x.Header, Body: x.Bytes,
		}
		if len(x.HeaderBytes) > 0 {
			page.Messages[i].Header = x.HeaderBytes
		}
		if x.Bytes == nil {
			page.Messages[i].Body = []byte(x.Body)
		}
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

// within repeats a request until it succeeds, a broker refuses it permanently, the topic is gone, ctx ends, or patience
// has passed.
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
