package migration

import (
	"context"
	"encoding/json"
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
	return t.PostAny(ctx, "/topic/create", url.Values{"topic": {topic}}, nil)
}

// ensureChannel creates a channel unless it exists, and reports whether it did.
func ensureChannel(ctx context.Context, t *cli.Target, topic, channel string) (created bool, err error) {
	channels, err := t.Channels(ctx, topic)
	if err != nil || slices.ContainsFunc(channels, func(c api.ChannelView) bool { return c.Channel == channel }) {
		return false, err
	}
	err = t.PostAny(ctx, "/channel/create", url.Values{"topic": {topic}, "channel": {channel}}, nil)
	return err == nil, err
}

// pause pauses a topic, or a channel of it.
func pause(ctx context.Context, t *cli.Target, topic, channel string) error {
	if channel == "" {
		return t.PostAny(ctx, "/topic/pause", url.Values{"topic": {topic}}, nil)
	}
	return t.PostAny(ctx, "/channel/pause", url.Values{"topic": {topic}, "channel": {channel}}, nil)
}

// messageOptions are the settings for publishing messages of another system.
func messageOptions(t *cli.Target, report func(string)) publisher.Options {
	return publisher.Options{
		Addresses: t.TCP, Dialer: t.Security.Dialer(), Batch: 100, Window: 50, Retry: publisher.Forever,
		Timeout: putTimeout, Report: report,
	}
}
