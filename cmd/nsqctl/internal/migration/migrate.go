package migration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/publisher"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/concurrency"
)

const unreadChannel = "lockstep-migrate" // the channel on the stock side for topics without a channel of their own

// Commands returns migrate and import-nsqd.
func Commands(t *cli.Target) []*cobra.Command {
	return []*cobra.Command{newMigrate(t), newImportNSQD(t)}
}

func newMigrate(t *cli.Target) *cobra.Command {
	source := &stockSide{}
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "move a running stock NSQ cluster to Lockstep",
		Long: `migrate moves a running stock NSQ cluster to Lockstep without a stop:

  1. nsqctl migrate run creates the topics and channels in Lockstep, and moves each
     channel's messages to that channel there, until you stop it.
  2. Move the consumers to Lockstep, one after the other, in any order. A
     consumer that is still at NSQ and the bridge share the channel.
  3. Then move the producers, one after the other.
  4. nsqctl migrate status shows what is left. When nothing is, stop the nsqds.

The flags --from-… name the stock cluster, --nsqd-tcp-address and --nsqd-http-address the brokers of Lockstep.
docs/guide/migrate-from-nsq.md has the steps and the traps.`,
	}
	f := cmd.PersistentFlags()
	f.StringSliceVar(&source.Lookupds, "from-lookupd-http-address", nil, "HTTP address of an nsqlookupd of the stock cluster; may be repeated")
	f.StringSliceVar(&source.NSQDs, "from-nsqd-http-address", nil, "HTTP address of an nsqd of the stock cluster; may be repeated, instead of nsqlookupds")
	source.TLSFlags(f, "from-", "TCP", "the stock cluster")
	f.StringVar(&source.SecretFile, "from-auth-secret-file", "", "file with the secret for nsqds with an authorization server")
	cmd.AddCommand(newMigrateStatus(t, source), newMigrateRun(t, source))
	return cmd
}

// stockSide has the addresses and the credentials of the stock cluster. Those of Lockstep are not sent there.
type stockSide struct {
	stockSource
	cli.Security // without its token
}

// prepare reads the certificates. It refuses a command line without a source, or with both kinds of source.
func (s *stockSide) prepare() error {
	if err := s.LoadFiles(); err != nil {
		return fmt.Errorf("the stock cluster (--from-…): %w", err)
	}
	s.HTTP = (&cli.Security{TLSConfig: s.TLSConfig}).HTTPClient() // the secret is for TCP
	switch {
	case len(s.Lookupds) == 0 && len(s.NSQDs) == 0:
		return cli.Usage("the stock cluster is missing: --from-lookupd-http-address or --from-nsqd-http-address")
	case len(s.Lookupds) > 0 && len(s.NSQDs) > 0:
		return cli.Usage("--from-lookupd-http-address and --from-nsqd-http-address exclude each other: the nsqlookupds list the nsqds")
	}
	return nil
}

func newMigrateStatus(t *cli.Target, source *stockSide) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "show what a stock NSQ cluster has, and what is left to move",
		Long: `status lists the channels of the stock cluster: the messages that are left there (waiting, in flight and
deferred), the consumers that are still connected there, and whether the channel exists in Lockstep. It also lists the
producers that are still connected to an nsqd by TCP; a producer that uses HTTP is not visible.

It changes nothing. NEXT names the next step of the migration.`,
		Example: `  nsqctl migrate status --from-lookupd-http-address lookup1:4161
  nsqctl migrate status --from-nsqd-http-address nsq1:4151,nsq2:4151 -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := source.prepare(); err != nil {
				return err
			}
			s, err := readMigration(cmd.Context(), t, source)
			if err != nil {
				return err
			}
			return cli.Print(cmd, t, s, s.print)
		},
	}
}

type migrationStatus struct {
	NSQDs     []string           `json:"nsqds"`
	Channels  []migrationChannel `json:"channels"`
	Producers []string           `json:"producers"`
	Notes     []string           `json:"notes"`
	Left      int64              `json:"left"`
	Consumers int                `json:"consumers"`
	Bridged   bool               `json:"bridged"` // a bridge is connected
	Missing   int                `json:"missing"` // channels that Lockstep does not have
	Next      string             `json:"next"`
}

// migrationChannel is a channel over all stock nsqds; "" stands for the messages that no channel has received.
type migrationChannel struct {
	Topic     string `json:"topic"`
	Channel   string `json:"channel,omitempty"`
	Left      int64  `json:"left"`
	Consumers int    `json:"consumers"` // without bridges
	Exists    bool   `json:"exists"`    // in Lockstep
}

func readMigration(ctx context.Context, t *cli.Target, source *stockSide) (*migrationStatus, error) {
	c, err := source.read(ctx)
	if err != nil {
		return nil, err
	}
	v, err := t.Cluster(ctx)
	if err != nil {
		return nil, fmt.Errorf("lockstep: %w", err)
	}
	s := &migrationStatus{Channels: []migrationChannel{}, Producers: []string{}, Notes: []string{}}
	for _, topic := range c.topics() {
		var there []api.ChannelView
		if slices.ContainsFunc(v.Topics, func(x api.TopicView) bool { return x.Topic == topic }) {
			if there, err = t.Channels(ctx, topic); err != nil {
				return nil, fmt.Errorf("lockstep: %w", err)
			}
		}
		for _, name := range c.Channels[topic] {
			exists := slices.ContainsFunc(there, func(x api.ChannelView) bool { return x.Channel == name })
			s.Channels = append(s.Channels, migrationChannel{Topic: topic, Channel: name, Exists: exists})
		}
	}
	for _, n := range c.Nodes {
		s.addNode(n)
	}
	slices.SortFunc(s.Channels, func(a, b migrationChannel) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), strings.Compare(a.Channel, b.Channel))
	})
	s.Channels = slices.DeleteFunc(s.Channels, func(ch migrationChannel) bool { return ch.Channel == unreadChannel && ch.Left == 0 })
	s.sum()
	return s, nil
}

// sum fills in the fields that follow from the channels.
func (s *migrationStatus) sum() {
	for _, ch := range s.Channels {
		s.Left += ch.Left
		s.Consumers += ch.Consumers
		if !ch.Exists && ch.Channel != "" && ch.Channel != unreadChannel {
			s.Missing++
		}
	}
	s.Next = s.next()
}

func (s *migrationStatus) row(topic, channel string) *migrationChannel {
	i := slices.IndexFunc(s.Channels, func(ch migrationChannel) bool { return ch.Topic == topic && ch.Channel == channel })
	if i < 0 {
		i = len(s.Channels)
		s.Channels = append(s.Channels, migrationChannel{Topic: topic, Channel: channel})
	}
	return &s.Channels[i]
}

func (s *migrationStatus) addNode(n stockNode) {
	s.NSQDs = append(s.NSQDs, n.HTTP)
	note := func(format string, args ...any) { s.Notes = append(s.Notes, n.HTTP+": "+fmt.Sprintf(format, args...)) }
	if len(n.Ephemeral) > 0 {
		note("not moved, because they end with their clients: %s", strings.Join(n.Ephemeral, ", "))
	}
	for _, t := range n.Topics {
		if t.Depth > 0 {
			s.row(t.TopicName, "").Left += t.Depth
		}
		switch {
		case t.Paused:
			note("topic %s is paused: its messages stay there until it is unpaused", t.TopicName)
		case len(t.Channels) == 0 && t.Depth > 0:
			note("topic %s has no channel: its messages stay there until it has one (nsqctl migrate run --unread)", t.TopicName)
		}
		for _, ch := range t.Channels {
			row := s.row(t.TopicName, ch.ChannelName)
			row.Left += leftIn(ch)
			for _, client := range ch.Clients {
				if strings.HasPrefix(client.UserAgent, bridgeAgent) {
					s.Bridged = true
				} else {
					row.Consumers++
				}
			}
			if ch.Paused {
				note("channel %s of %s is paused: its messages stay there until it is unpaused", ch.ChannelName, t.TopicName)
			}
		}
	}
	for _, p := range n.Producers {
		topics := make([]string, len(p.PubCounts))
		for i, x := range p.PubCounts {
			topics[i] = x.Topic
		}
		s.Producers = append(s.Producers, fmt.Sprintf("%s (%s, %s) at %s: %s", cmp.Or(p.Hostname, p.ClientID), p.RemoteAddress, p.UserAgent, n.HTTP, strings.Join(topics, ", ")))
	}
}

// leftIn is the number of messages that a channel has, in any state.
func leftIn(ch api.ChannelStats) int64 {
	return ch.Depth + int64(ch.InFlightCount) + int64(ch.DeferredCount)
}

func (s *migrationStatus) next() string {
	switch {
	case s.Missing > 0, s.Left > 0 && !s.Bridged:
		return "nsqctl migrate run: it creates the channels in Lockstep and moves the messages"
	case s.Consumers > 0:
		return fmt.Sprintf("move the consumers: %s left", api.Count(s.Consumers, "connection"))
	case len(s.Producers) > 0:
		return fmt.Sprintf("move the producers: %s left", api.Count(len(s.Producers), "connection"))
	case s.Left > 0:
		return fmt.Sprintf("wait: %s left", api.Count(s.Left, "message"))
	}
	return "nothing is left: stop the nsqds when producers no longer use their HTTP API"
}

func (s *migrationStatus) print(w io.Writer) {
	fmt.Fprintln(w, "TOPIC\tCHANNEL\tLEFT\tCONSUMERS\tIN LOCKSTEP")
	for _, ch := range s.Channels {
		exists := cmp.Or(cli.Mark(ch.Exists, "yes"), "no")
		if ch.Channel == "" {
			ch.Channel, exists = "(none yet)", ""
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", ch.Topic, ch.Channel, ch.Left, ch.Consumers, exists)
	}
	for _, p := range s.Producers {
		fmt.Fprintln(w, "producer", p)
	}
	for _, n := range s.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	fmt.Fprintln(w, "NEXT:", s.Next)
}

func newMigrateRun(t *cli.Target, source *stockSide) *cobra.Command {
	o := migrating{t: t, source: source}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "create the topics and channels of a stock NSQ cluster, and move their messages",
		Long: `run creates all durable topics and channels of the stock cluster in Lockstep, with their pauses. Then it
consumes each channel of each nsqd, and publishes every message in Lockstep for that channel alone. It finishes a
message at the nsqd only after the OK of Lockstep, so none is lost. It checks for new topics, channels and nsqds every
--poll.

It may be stopped (Ctrl-C, kill -9) and started again at any time: its progress is that of the channels at the nsqds.
After kill -9 the messages that were in flight, at most --max-in-flight for each channel, may be in Lockstep twice. Run
one at a time.

If Lockstep does not answer, run waits for it, and the messages wait at the nsqds. It ends with an error if Lockstep
refuses a message permanently, such as one above its --max-msg-size.

Messages keep their body. Lost: message ids, times of publication, counts of attempts. A deferred message is moved when
it is due. An address of --from-… may begin with https://.

A topic without a channel keeps its messages at the nsqds. With --unread run drains such topics by a channel of its own,` + unreadChannel + `, for all channels that the topic
will have in Lockstep: use it when consumers will no longer create channels at NSQ.`,
		Example: `  nsqctl migrate run --from-lookupd-http-address lookup1:4161,lookup2:4161 --nsqd-tcp-address ls1:4150,ls2:4150 --nsqd-http-address ls1:4151,ls2:4151
  nsqctl migrate run --from-nsqd-http-address nsq1:4151 --until-drained     # at the end: returns when nothing is left`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := source.prepare(); err != nil {
				return err
			}
			if o.inFlight < 1 || o.inFlight > 2500 || o.poll <= 0 {
				return cli.Usage("--max-in-flight must be 1 to 2500, --poll more than 0")
			}
			return o.run(cmd)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.inFlight, "max-in-flight", 500, "largest number of messages in flight of each channel")
	f.DurationVar(&o.poll, "poll", 5*time.Second, "how often the stock cluster is read")
	f.BoolVar(&o.untilDrained, "until-drained", false, "end when nothing was left, and nothing was published, for three polls")
	f.BoolVar(&o.unread, "unread", false, "also drain topics without a channel")
	return cmd
}

const (
	bridgeLinger = 2 * time.Millisecond // how long a moved message waits for others of its batch
	drainedPolls = 3                    // how often in a row a drained cluster is seen before --until-drained ends
)

// migrating is one run of the bridges. It belongs to one goroutine.
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
	received uint64 // messages that the nsqds have received
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
			api.Count(moved, "message"), time.Since(o.began).Round(time.Millisecond), api.Count(unanswered, "put"))
		if repeated > 0 {
			fmt.Fprintf(w, "; not published again, because it came again before the OK: %s", api.Count(repeated, "message"))
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
	for _, topic := range c.topics() { // all channels, before the first message moves
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
	if o.drained++; left > 0 || received != o.received || len(failed) > 0 {
		o.drained = 0
	}
	o.received = received
	o.reporter.Progress(func() string {
		moved, _ := o.counts()
		return fmt.Sprintf("%s, %s moved, %d left", api.Count(len(o.bridges), "channel"), api.Count(moved, "message"), left)
	})
	return errors.Join(failed...)
}

// create makes a topic and its channels in Lockstep, paused where they are paused in the stock cluster.
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
		created, err := o.t.CreateChannel(ctx, topic, channel, nil)
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

func (o *migrating) connect(ctx context.Context, c *stockCluster, n stockNode, t api.TopicStats) error {
	channels := slices.Clone(c.expected(t))
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

// bridge returns the bridge of a channel, which the first call starts.
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
	consumer := o.source.NSQ()
	consumer.MaxInFlight = o.inFlight
	b, err := startBridge(bridgeOptions{Topic: key.topic, Channel: key.channel, Header: onlyFor(only), Consumer: consumer, Publisher: publish})
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
	counts := make(chan int, len(o.bridges))
	for _, b := range o.bridges {
		go func() { counts <- b.stop() }()
	}
	for range o.bridges {
		unanswered += <-counts
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
