package migration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/bridge"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/stockcluster"
	"github.com/lockstepmq/lockstep/internal/api"
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

	say      *cli.Reporter
	bridges  map[bridgeKey]*bridge.Bridge
	known    map[bridgeKey]bool // topics (channel "") and channels that exist in Lockstep
	began    time.Time
	shownAt  time.Time
	received uint64 // messages that the nsqds have got
	drained  int    // polls in a row without anything left
}

// bridgeKey names a bridge.
type bridgeKey struct{ topic, channel string }

func (o *migrating) run(cmd *cobra.Command) error {
	o.say = cli.NewReporter(cmd.ErrOrStderr())
	o.bridges, o.known, o.began = map[bridgeKey]*bridge.Bridge{}, map[bridgeKey]bool{}, time.Now()
	err := o.loop(cmd.Context())
	unanswered := o.stop()
	moved, repeated := o.counts()
	o.say.Clear()
	text := fmt.Sprintf("%d messages moved in %s; %d puts had no answer at the end and may be stored twice", moved, time.Since(o.began).Round(time.Millisecond), unanswered)
	if repeated > 0 {
		text += fmt.Sprintf("; %d messages came again before their OK and were not published again", repeated)
	}
	if o.t.Output == "json" {
		if printed := cli.PrintJSON(cmd.OutOrStdout(), map[string]any{"moved": moved, "unanswered": unanswered, "repeated": repeated, "drained": err == nil && o.drained >= drainedPolls}); err == nil {
			err = printed
		}
		return err
	}
	if err == nil && o.drained >= drainedPolls {
		text += "; nothing is left"
	}
	fmt.Fprintln(cmd.OutOrStdout(), text)
	return err
}

// loop looks at the stock cluster until ctx ends, a bridge fails, or nothing is left.
func (o *migrating) loop(ctx context.Context) error {
	for first := true; ; first = false {
		switch err := o.look(ctx); {
		case ctx.Err() != nil:
			return nil // Ctrl-C is the way to stop it
		case err != nil && first:
			return err // most likely a wrong address
		case err != nil:
			o.drained = 0
			o.say.Report(fmt.Sprintf("%v; the bridges continue, next try in %s", err, o.poll))
		}
		if o.untilDrained && o.drained >= drainedPolls {
			return nil
		}
		pause := time.NewTimer(o.poll)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil
		}
		if err := o.failed(); err != nil {
			return err
		}
	}
}

// failed returns the error of a bridge that has ended.
func (o *migrating) failed() error {
	for key, b := range o.bridges {
		select {
		case <-b.Ended():
			return fmt.Errorf("topic %s, channel %s: %w", key.topic, key.channel, b.Err())
		default:
		}
	}
	return nil
}

// look reads the stock cluster, creates what is missing in Lockstep, and starts bridges.
func (o *migrating) look(ctx context.Context) error {
	c, err := o.source.Read(ctx)
	if err != nil {
		return err
	}
	for _, topic := range c.Topics() { // all of them, before the first message moves
		if err := o.create(ctx, c, topic); err != nil {
			return fmt.Errorf("lockstep: %w", err)
		}
	}
	var failed []error
	var left int64
	var received uint64
	for _, n := range c.Nodes {
		unsafe := cli.Secured{Security: &o.source.Security}.Check(ctx, n.TCP) // go-nsq would continue in plain text
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
	o.progress(left)
	return errors.Join(failed...)
}

// create makes a topic and its channels in Lockstep, with the pauses that they have.
func (o *migrating) create(ctx context.Context, c *stockcluster.Cluster, topic string) error {
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
		if created && pausedEverywhere(c, topic, channel) {
			if err := pause(ctx, o.t, topic, channel); err != nil {
				return err
			}
		}
		o.known[key] = true
	}
	return nil
}

// pausedEverywhere reports whether all nsqds with a channel have paused it.
func pausedEverywhere(c *stockcluster.Cluster, topic, channel string) bool {
	found := false
	for _, n := range c.Nodes {
		for _, t := range n.Topics {
			for _, ch := range t.Channels {
				if t.TopicName == topic && ch.ChannelName == channel {
					if !ch.Paused {
						return false
					}
					found = true
				}
			}
		}
	}
	return found
}

// connect bridges the channels of a topic on one nsqd.
func (o *migrating) connect(ctx context.Context, c *stockcluster.Cluster, n stockcluster.Node, t api.TopicStats) error {
	channels := slices.Clone(c.Expected(t.TopicName, n))
	if o.unread && !slices.ContainsFunc(c.Channels[t.TopicName], func(name string) bool { return name != unreadChannel }) {
		channels = []string{unreadChannel}
	}
	if err := o.source.Prepare(ctx, n, t, channels); err != nil {
		return err
	}
	for _, channel := range channels {
		b, err := o.bridge(bridgeKey{t.TopicName, channel})
		if err != nil {
			return err
		}
		if err := b.Connect(n.TCP); err != nil {
			return fmt.Errorf("channel %s: %w", channel, err)
		}
	}
	return nil
}

// bridge returns the bridge of a channel, and starts it at first.
func (o *migrating) bridge(key bridgeKey) (*bridge.Bridge, error) {
	if b := o.bridges[key]; b != nil {
		return b, nil
	}
	publish := messageOptions(o.t, o.say.Report)
	publish.Linger = bridgeLinger
	first := len(o.bridges) % len(publish.Addresses) // the bridges use all brokers
	publish.Addresses = slices.Concat(publish.Addresses[first:], publish.Addresses[:first])
	only := key.channel
	if only == unreadChannel {
		only = "" // for all channels
	}
	b, err := bridge.Start(bridge.Options{Topic: key.topic, Channel: key.channel, Header: onlyFor(only), Consumer: o.source.NSQ(), Report: o.say.Report, MaxInFlight: o.inFlight, Publisher: publish})
	if err == nil {
		o.bridges[key] = b
	}
	return b, err
}

func (o *migrating) counts() (moved, repeated int64) {
	for _, b := range o.bridges {
		n := b.Counts()
		moved, repeated = moved+n.Moved, repeated+n.Repeated
	}
	return moved, repeated
}

// progress shows the counts: on a terminal at each poll, elsewhere every progressEvery.
func (o *migrating) progress(left int64) {
	if !o.say.Due(o.shownAt) {
		return
	}
	o.shownAt = time.Now()
	moved, _ := o.counts()
	o.say.Show(fmt.Sprintf("%d channels, %d messages moved, %d left", len(o.bridges), moved, left))
}

// stop ends all bridges and returns the number of puts without an answer.
func (o *migrating) stop() (unanswered int) {
	var ending sync.WaitGroup
	counts := make(chan int, len(o.bridges))
	for _, b := range o.bridges {
		ending.Go(func() { counts <- b.Stop() })
	}
	ending.Wait()
	close(counts)
	for n := range counts {
		unanswered += n
	}
	return unanswered
}
