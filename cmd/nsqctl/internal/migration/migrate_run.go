package migration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/publisher"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/concurrency"
)

const (
	// bridgeLinger is how long a moved message waits for others of its batch.
	bridgeLinger = 2 * time.Millisecond
	// drainedPolls is how often in a row a drained cluster is seen before --until-drained ends.
	drainedPolls = 3
)

// migrating is one run of the bridges. One goroutine owns it.
type migrating struct {
	t                    *cli.Target
	source               *stockSide
	inFlight             int
	poll                 time.Duration
	untilDrained, unread bool

	reporter *cli.Reporter
	bridges  map[bridgeKey]*bridge
	known    map[bridgeKey]bool // topics (channel "") and channels that exist in Lockstep
	began    time.Time
	received uint64 // messages that the nsqds have got
	drained  int    // polls in a row without anything left
}

type bridgeKey struct{ topic, channel string }

func (o *migrating) run(cmd *cobra.Command) error {
	o.reporter = cli.NewReporter(cmd.ErrOrStderr())
	o.bridges, o.known, o.began = map[bridgeKey]*bridge{}, map[bridgeKey]bool{}, time.Now()
	err := o.loop(cmd.Context())
	unanswered := o.stop()
	moved, repeated := o.counts()
	o.reporter.Clear()
	drained := err == nil && o.drained >= drainedPolls
	answer := map[string]any{"moved": moved, "unanswered": unanswered, "repeated": repeated, "drained": drained}
	return errors.Join(err, cli.Print(cmd, o.t, answer, func(w io.Writer) {
		fmt.Fprintf(w, "%s moved in %s; %s had no answer at the end and may be stored twice",
			cli.Count(moved, "message"), time.Since(o.began).Round(time.Millisecond), cli.Count(unanswered, "put"))
		if repeated > 0 {
			fmt.Fprintf(w, "; not published again, because it came again before the OK: %s", cli.Count(repeated, "message"))
		}
		fmt.Fprintln(w, cli.Mark(drained, "; nothing is left"))
	}))
}

// loop polls the stock cluster until ctx ends, a bridge fails, or nothing is left.
func (o *migrating) loop(ctx context.Context) error {
	for first := true; ; first = false {
		switch err := o.refresh(ctx); {
		case ctx.Err() != nil:
			return nil // Ctrl-C is the way to stop it
		case err != nil && first:
			return err // most likely a wrong address
		case err != nil:
			o.drained = 0
			o.reporter.Report(fmt.Sprintf("%v; the bridges continue, next try in %s", err, o.poll))
		}
		if o.untilDrained && o.drained >= drainedPolls {
			return nil
		}
		if !concurrency.Sleep(ctx, o.poll) {
			return nil
		}
		if err := o.failed(); err != nil {
			return err
		}
	}
}

func (o *migrating) failed() error {
	for key, b := range o.bridges {
		select {
		case <-b.ended:
			return fmt.Errorf("topic %s, channel %s: %w", key.topic, key.channel, b.err)
		default:
		}
	}
	return nil
}

// refresh reads the stock cluster, creates what is missing in Lockstep, and starts bridges.
func (o *migrating) refresh(ctx context.Context) error {
	c, err := o.source.read(ctx)
	if err != nil {
		return err
	}
	for _, topic := range c.topics() { // all of them, before the first message moves
		if err := o.create(ctx, c, topic); err != nil {
			return fmt.Errorf("lockstep: %w", err)
		}
	}
	var failed []error
	var left int64
	var received uint64
	for _, n := range c.Nodes {
		unsafe := o.source.CheckTLS(ctx, n.TCP) // go-nsq would continue in plain text
		for _, t := range n.Topics {
			left += t.Depth
			received += t.MessageCount
			for _, ch := range t.Channels {
				left += leftIn(ch)
			}
			err := unsafe
			if err == nil {
				err = o.connect(ctx, c, n, t)
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("nsqd %s: topic %s: %w", n.HTTP, t.TopicName, err))
			}
		}
	}
	if left == 0 && received == o.received && len(failed) == 0 {
		o.drained++
	} else {
		o.drained = 0
	}
	o.received = received
	o.reporter.Progress(func() string {
		moved, _ := o.counts()
		return fmt.Sprintf("%s, %s moved, %d left", cli.Count(len(o.bridges), "channel"), cli.Count(moved, "message"), left)
	})
	return errors.Join(failed...)
}

// create makes a topic and its channels in Lockstep, with the pauses that they have.
func (o *migrating) create(ctx context.Context, c *stockCluster, topic string) error {
	if !o.known[bridgeKey{topic, ""}] {
		if err := ensureTopic(ctx, o.t, topic); err != nil {
			return err
		}
		o.known[bridgeKey{topic, ""}] = true
	}
	for _, channel := range c.Channels[topic] {
		key := bridgeKey{topic, channel}
		if o.known[key] || channel == unreadChannel {
			continue
		}
		created, err := ensureChannel(ctx, o.t, topic, channel)
		if err != nil {
			return err
		}
		if created && c.paused[key] {
			if err := pause(ctx, o.t, topic, channel); err != nil {
				return err
			}
		}
		o.known[key] = true
	}
	return nil
}

// connect bridges the channels of a topic on one nsqd.
func (o *migrating) connect(ctx context.Context, c *stockCluster, n stockNode, t api.TopicStats) error {
	channels := slices.Clone(c.expected(t.TopicName, n))
	if o.unread && !slices.ContainsFunc(c.Channels[t.TopicName], func(name string) bool { return name != unreadChannel }) {
		channels = []string{unreadChannel}
	}
	if err := o.source.prepareTopic(ctx, n, t, channels); err != nil {
		return err
	}
	for _, channel := range channels {
		b, err := o.bridge(bridgeKey{t.TopicName, channel})
		if err != nil {
			return err
		}
		if err := b.connect(n.TCP); err != nil {
			return fmt.Errorf("channel %s: %w", channel, err)
		}
	}
	return nil
}

// bridge returns the bridge of a channel, and starts it at first.
func (o *migrating) bridge(key bridgeKey) (*bridge, error) {
	if b := o.bridges[key]; b != nil {
		return b, nil
	}
	publish := messageOptions(o.t, o.reporter.Report)
	publish.Linger = bridgeLinger
	first := len(o.bridges) % len(publish.Addresses) // the bridges use all brokers
	publish.Addresses = slices.Concat(publish.Addresses[first:], publish.Addresses[:first])
	only := key.channel
	if only == unreadChannel {
		only = "" // for all channels
	}
	b, err := startBridge(bridgeOptions{
		Topic: key.topic, Channel: key.channel, Header: onlyFor(only), Consumer: o.source.NSQ(), Report: o.reporter.Report,
		MaxInFlight: o.inFlight, Publisher: publish,
	})
	if err == nil {
		o.bridges[key] = b
	}
	return b, err
}

func (o *migrating) counts() (moved, repeated int64) {
	for _, b := range o.bridges {
		m, r := b.counts()
		moved, repeated = moved+m, repeated+r
	}
	return moved, repeated
}

// stop ends all bridges and returns the number of puts without an answer.
func (o *migrating) stop() (unanswered int) {
	var ending sync.WaitGroup
	counts := make(chan int, len(o.bridges))
	for _, b := range o.bridges {
		ending.Go(func() { counts <- b.stop() })
	}
	ending.Wait()
	close(counts)
	for n := range counts {
		unanswered += n
	}
	return unanswered
}

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
