package coordinator

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/edge"
)

// topicOptions reads retention_time and message_ttl (durations), retention_bytes
// and max_bytes from the arguments, over what the topic has. 0 takes a limit away.
func topicOptions(o meta.TopicOptions, args map[string]string) (meta.TopicOptions, error) {
	for name, to := range map[string]*int64{"retention_time": &o.RetentionMS, "message_ttl": &o.TTLMS} {
		text := args[name]
		if text == "" {
			continue
		}
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return o, fmt.Errorf("%w: %s must be a duration such as 24h", edge.ErrInvalid, name)
		}
		*to = d.Milliseconds()
	}
	for name, to := range map[string]*int64{"retention_bytes": &o.RetentionBytes, "max_bytes": &o.MaxBytes} {
		text := args[name]
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return o, fmt.Errorf("%w: %s must be a number of bytes", edge.ErrInvalid, name)
		}
		*to = n
	}
	return o, nil
}

// setOptions changes the options of a topic that is there to what the arguments
// say, and returns when this broker knows it.
func (b *Broker) setOptions(ctx context.Context, topic string, args map[string]string) error {
	return b.changeTopic(ctx, topic, func(t meta.TopicState) (meta.TopicState, error) {
		var err error
		t.Options, err = topicOptions(t.Options, args)
		return t, err
	})
}
