package migration

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/publisher"
	"github.com/lockstepmq/lockstep/internal/api"
)

// onlyFor returns the header of a message for one channel alone. nil: for all channels.
func onlyFor(channel string) []byte {
	if channel == "" {
		return nil
	}
	header, _ := json.Marshal(map[string]string{"##only_channel": channel}) // a map of strings always marshals
	return header
}

// ensureTopic creates a topic unless it exists.
func ensureTopic(ctx context.Context, t *cli.Target, topic string) error {
	_, err := t.CallAny(ctx, http.MethodPost, "/topic/create", url.Values{"topic": {topic}})
	return err
}

// ensureChannel creates a channel unless it exists, and reports whether it did.
func ensureChannel(ctx context.Context, t *cli.Target, topic, channel string) (created bool, err error) {
	names, err := channelNames(ctx, t, topic)
	if err != nil || slices.Contains(names, channel) {
		return false, err
	}
	_, err = t.CallAny(ctx, http.MethodPost, "/channel/create", url.Values{"topic": {topic}, "channel": {channel}})
	return err == nil, err
}

// channelNames lists the durable channels of a topic.
func channelNames(ctx context.Context, t *cli.Target, topic string) (names []string, err error) {
	var v struct {
		Channels []api.ChannelView `json:"channels"`
	}
	if err := t.GetAny(ctx, "/v1/topic/channels", url.Values{"topic": {topic}}, &v); err != nil {
		return nil, err
	}
	for _, c := range v.Channels {
		names = append(names, c.Channel)
	}
	return names, nil
}

// pause pauses a topic, or a channel of it.
func pause(ctx context.Context, t *cli.Target, topic, channel string) error {
	path, q := "/topic/pause", url.Values{"topic": {topic}}
	if channel != "" {
		path = "/channel/pause"
		q.Set("channel", channel)
	}
	_, err := t.CallAny(ctx, http.MethodPost, path, q)
	return err
}

// messageOptions are the settings for publishing messages of another system.
func messageOptions(t *cli.Target, report func(string)) publisher.Options {
	return publisher.Options{
		Addresses: t.TCP, Dialer: t.Security.Dialer(), Batch: 100, Window: 50, Retry: publisher.Forever,
		Timeout: putTimeout, Report: report, Progress: func(int) {},
	}
}
