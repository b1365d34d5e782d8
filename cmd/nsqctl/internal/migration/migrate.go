package migration

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
)

// unreadChannel is the channel on the stock side for topics without a channel of their own.
const unreadChannel = "lockstep-migrate"

// NewMigrate returns the command that moves a running stock cluster.
func NewMigrate(t *cli.Target) *cobra.Command {
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

The flags --from-… name the stock cluster, --nsqd-tcp-address and --nsqd-http-address
the brokers of Lockstep. docs/guide/migrate-from-nsq.md has the steps and the traps.`,
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

// prepare reads the certificates. It refuses a command line without a source, or with both kinds.
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
		Long: `status lists the channels of the stock cluster: the messages that are left there
(waiting, in flight and deferred), the consumers that are still connected there, and
whether the channel exists in Lockstep. It also lists the producers that are still
connected to an nsqd by TCP; a producer that uses HTTP is not visible.

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

// migrationChannel is a channel of the stock cluster, over all its nsqds. Channel "" stands for the
// messages that no channel has received.
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
	for i := range s.Channels {
		if s.Channels[i].Topic == topic && s.Channels[i].Channel == channel {
			return &s.Channels[i]
		}
	}
	s.Channels = append(s.Channels, migrationChannel{Topic: topic, Channel: channel})
	return &s.Channels[len(s.Channels)-1]
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
		return fmt.Sprintf("move the consumers: %s left", cli.Count(s.Consumers, "connection"))
	case len(s.Producers) > 0:
		return fmt.Sprintf("move the producers: %s left", cli.Count(len(s.Producers), "connection"))
	case s.Left > 0:
		return fmt.Sprintf("wait: %s left", cli.Count(s.Left, "message"))
	}
	return "nothing is left: stop the nsqds when producers no longer use their HTTP API"
}

func (s *migrationStatus) print(w io.Writer) {
	fmt.Fprintln(w, "TOPIC\tCHANNEL\tLEFT\tCONSUMERS\tIN LOCKSTEP")
	for _, ch := range s.Channels {
		exists := "no"
		if ch.Exists {
			exists = "yes"
		}
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
		Long: `run creates all durable topics and channels of the stock cluster in Lockstep, with
their pauses. Then it consumes each channel of each nsqd, and publishes every message in
Lockstep for that channel alone. It finishes a message at the nsqd only after the OK of
Lockstep, so none is lost. It checks for new topics, channels and nsqds every --poll.

It may be stopped (Ctrl-C, kill -9) and started again at any time: its progress is that
of the channels at the nsqds. After kill -9 the messages that were in flight, at most
--max-in-flight for each channel, may be in Lockstep twice. Run one at a time.

If Lockstep does not answer, run waits for it, and the messages wait at the nsqds. It ends
with an error if Lockstep refuses a message permanently, such as one above its --max-msg-size.

Messages keep their body. Lost: message ids, times of publication, counts of attempts. A
deferred message is moved when it is due. An address of --from-… may begin with https://.

A topic without a channel keeps its messages at the nsqds. With --unread run drains
such topics by a channel of its own, ` + unreadChannel + `, for all channels that the topic
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
