package copier

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// Page is a part of a partition's log.
type Page struct {
	Start    uint64 // the first message that the log has
	End      uint64 // behind the last committed one
	Next     uint64 // where the following page begins
	Messages []msgstream.Message
	// Mark and NextMark identify the log up to the place that was asked for, and up to Next (api.Peeked).
	Mark, NextMark string
}

// peeked is the answer of GET /v1/topic/peek.
type peeked struct {
	Start    uint64 `json:"start"`
	End      uint64 `json:"end"`
	Next     uint64 `json:"next"`
	Mark     string `json:"mark"`
	NextMark string `json:"next_mark"`
	Messages []struct {
		Sequence    uint64          `json:"sequence"`
		Time        int64           `json:"timestamp"`
		DeliverAt   int64           `json:"deliver_at"`
		Trace       uint64          `json:"trace"`
		Header      json.RawMessage `json:"header"`
		HeaderBytes []byte          `json:"header_base64"`
		Body        string          `json:"body"`
		Bytes       []byte          `json:"body_base64"`
	} `json:"messages"`
}

// Read reads a page of a partition, from a place as of `nsqctl peek`. It reads the replica of the
// leader if that is named. A topic of that name with another id is answered like one that does not exist (Gone).
func Read(ctx context.Context, c *brokerapi.Client, topic string, id ident.TopicID, partition int, from, leader string, limit int) (Page, error) {
	q := url.Values{"topic": {topic}, "topic_id": {id.String()}, "partition": {fmt.Sprint(partition)}, "from": {from}, "limit": {fmt.Sprint(limit)}}
	if leader != "" {
		q.Set("node", leader)
		q.Set("leader", "true")
	}
	var answer peeked
	if err := c.GetAny(ctx, "/v1/topic/peek", q, &answer); err != nil {
		return Page{}, err
	}
	page := Page{Start: answer.Start, End: answer.End, Next: answer.Next, Mark: answer.Mark, NextMark: answer.NextMark, Messages: make([]msgstream.Message, len(answer.Messages))}
	for i := range answer.Messages {
		x := &answer.Messages[i]
		m := msgstream.Message{
			Partition: uint16(partition), Sequence: x.Sequence, TimeNS: x.Time, DeliverAtNS: x.DeliverAt, Trace: x.Trace, Header: x.Header, Body: x.Bytes,
		}
		if len(x.HeaderBytes) > 0 {
			m.Header = x.HeaderBytes
		}
		if m.Body == nil {
			m.Body = []byte(x.Body)
		}
		page.Messages[i] = m
	}
	return page, nil
}

// Topic reads the view of a topic; false if there is none.
func Topic(ctx context.Context, c *brokerapi.Client, topic string) (api.ClusterView, api.TopicView, bool, error) {
	var v api.ClusterView
	if err := c.GetAny(ctx, "/v1/cluster", nil, &v); err != nil {
		return v, api.TopicView{}, false, err
	}
	for _, x := range v.Topics {
		if x.Topic == topic {
			return v, x, true, nil
		}
	}
	return v, api.TopicView{}, false, nil
}

// AtLeader is Read at the broker that leads the partition: no other replica is as new.
func AtLeader(ctx context.Context, c *brokerapi.Client, topic string, id ident.TopicID, partition int, from string, limit int) (Page, error) {
	_, view, ok, err := Topic(ctx, c, topic)
	switch {
	case err != nil:
		return Page{}, err
	case !ok:
		return Page{}, fmt.Errorf("there is no topic %s", topic)
	}
	for _, x := range view.Partitions {
		if x.Partition == partition && x.Leader != "" {
			return Read(ctx, c, topic, id, partition, from, string(x.Leader), limit)
		}
	}
	return Page{}, fmt.Errorf("partition %d of %s has no leader", partition, topic)
}

// Positions reads how far the channels of a topic are.
func Positions(ctx context.Context, c *brokerapi.Client, topic string) ([]api.ChannelPosition, error) {
	var v struct {
		Positions []api.ChannelPosition `json:"positions"`
	}
	err := c.GetAny(ctx, "/v1/topic/positions", url.Values{"topic": {topic}}, &v)
	return v.Positions, err
}
