package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
)

// mirrorState is the default name of the state file.
const mirrorState = "lockstep-mirror.json"

// NewMirror returns the command that mirrors topics of another cluster.
func NewMirror(t *cli.Target) *cobra.Command {
	m := &mirrorCommand{t: t}
	cmd := &cobra.Command{
		Use:   "mirror",
		Short: "copy topics of another Lockstep cluster to this one, continuously",
		Long: `mirror copies topics of another cluster, the source, to this one, the target:

  nsqctl mirror run       copies until it is stopped, and continues where it stopped
  nsqctl mirror status    shows how far it is

The flags --from-… name the source; --nsqd-http-address names the brokers of the target.
docs/guide/mirror.md has the steps, what is preserved, and how a mirror behaves after a failure.`,
	}
	m.sourceFlags(cmd.PersistentFlags())
	cmd.AddCommand(newMirrorRun(m), newMirrorStatus(m))
	return cmd
}

// mirrorCommand has the flags of all commands of a mirror.
type mirrorCommand struct {
	t        *cli.Target
	from     sourceSide
	state    string
	patterns []string
}

// sourceSide has the addresses and the credentials of the source. Those of the target are not sent there.
type sourceSide struct {
	brokerapi.Client
	cli.Security
}

func (m *mirrorCommand) sourceFlags(f *pflag.FlagSet) {
	s := &m.from
	f.StringSliceVar(&s.Addresses, "from-http-address", nil, "HTTP address of a broker of the source, with TLS its HTTPS address; may be repeated, the next is asked when one does not answer")
	s.TLSFlags(f, "from-", "HTTP", "the source")
	f.StringVar(&s.TokenFile, "from-token-file", "", "file with the token of a user of the source")
	f.StringVar(&m.state, "state", mirrorState, "file with the progress")
}

// prepare reads the arguments and the certificates.
func (m *mirrorCommand) prepare(patterns []string) error {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil {
			return cli.Usage("%q is not a pattern: * stands for any part of a name", p)
		}
	}
	m.patterns = patterns
	s := &m.from
	if len(s.Addresses) == 0 {
		return cli.Usage("the source is missing: --from-http-address")
	}
	if err := s.LoadFiles(); err != nil { // the environment's token is the target's
		return fmt.Errorf("the source (--from-…): %w", err)
	}
	s.HTTP, s.TLS = s.HTTPClient(), s.TLSConfig != nil
	return nil
}

func (m *mirrorCommand) matches(topic string) bool {
	if strings.HasSuffix(topic, "#ephemeral") {
		return false
	}
	for _, p := range m.patterns {
		if ok, _ := path.Match(p, topic); ok { // prepare has checked the patterns
			return true
		}
	}
	return false
}

// clusters reads both clusters. It refuses a source that is the target.
func (m *mirrorCommand) clusters(ctx context.Context) (source, to api.ClusterView, err error) {
	if source, err = m.from.Cluster(ctx); err != nil {
		return source, to, fmt.Errorf("the source: %w", err)
	}
	if to, err = m.t.Cluster(ctx); err != nil {
		return source, to, fmt.Errorf("the target: %w", err)
	}
	for _, x := range source.Brokers {
		for _, y := range to.Brokers {
			if x.Name == y.Name && x.RPCAddress == y.RPCAddress && x.Incarnation == y.Incarnation {
				return source, to, errors.New("the source and the target are the same cluster")
			}
		}
	}
	return source, to, nil
}

func newMirrorRun(m *mirrorCommand) *cobra.Command {
	o := mirroring{mirrorCommand: m}
	cmd := &cobra.Command{
		Use:   "run TOPIC|PATTERN...",
		Short: "copy topics until it is stopped",
		Long: `run copies every topic whose name matches: messages with their headers, delays and partitions,
in order, and the durable channels with their positions. It creates missing topics, partitions and
channels at the target, also later ones. A put that the target refuses, such as a message that is too
large for it, is repeated every 10 s and delays its partition alone. Both sides may fail or be cut off at any time: run waits
and continues with the next message. Every message is copied once: a put without an answer is
repeated, and the target recognises it within the dedupe window of the topic. After the window
the messages of that put, at most --batch for each partition, may be there twice.

Each copy has the header ##origin, the place of its original. The progress is therefore
in the target itself; the file --state only shortens the start. Run one at a time for a topic.

Channels of the target without consumers follow the source's; they move forward only.
A message that came from the target is not copied back, so two mirrors may run in opposite directions.

Ctrl-C or SIGTERM waits up to 5 s for the puts in flight. --metrics-address serves the lag
to Prometheus.`,
		Example: `  nsqctl mirror run orders 'audit-*' --from-http-address east1:4151,east2:4151 --nsqd-http-address west1:4151,west2:4151
  nsqctl mirror run '*' --from-http-address east1:4151 --until-caught-up      # the last step of a move`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := m.prepare(args); err != nil {
				return err
			}
			if o.bytesRate < 0 || o.poll <= 0 || o.first != "earliest" && o.first != "latest" {
				return cli.Usage("--max-bytes-rate must be at least 0, --poll more than 0, --from earliest or latest")
			}
			if err := o.valid(); err != nil {
				return err
			}
			return o.run(cmd)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.first, "from", "earliest", "where a topic begins that was never mirrored: earliest or latest")
	o.flags(f)
	f.IntVar(&o.bytesRate, "max-bytes-rate", 0, "bytes of bodies a second over all topics; 0: no limit")
	f.DurationVar(&o.poll, "poll", 2*time.Second, "how often topics and the positions of channels are read")
	f.BoolVar(&o.untilCaughtUp, "until-caught-up", false, "end when nothing was left for three polls")
	f.StringVar(&o.metricsAddress, "metrics-address", "", "address for GET /metrics, such as 127.0.0.1:9130; empty: none")
	return cmd
}

func newMirrorStatus(m *mirrorCommand) *cobra.Command {
	return &cobra.Command{
		Use:   "status TOPIC|PATTERN...",
		Short: "show how far a mirror is",
		Long: `status compares the state file of nsqctl mirror run with the source: the messages of each
partition that were not copied when the file was written, at most a second ago while the mirror runs.`,
		Example: `  nsqctl mirror status 'orders*' --from-http-address east1:4151 --nsqd-http-address west1:4151`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := m.prepare(args); err != nil {
				return err
			}
			return m.status(cmd)
		},
	}
}

// mirrorLag is one partition in `mirror status`.
type mirrorLag struct {
	Topic     string  `json:"topic"`
	Partition int     `json:"partition"`
	Next      uint64  `json:"next"`
	End       *uint64 `json:"end"` // nil = unknown, no broker answered
	Lag       *uint64 `json:"lag"` // nil = unknown
	WentBack  bool    `json:"went_back,omitempty"`
}

func (m *mirrorCommand) status(cmd *cobra.Command) error {
	source, _, err := m.clusters(cmd.Context())
	if err != nil {
		return err
	}
	saved, err := loadMirror(m.state)
	if err != nil {
		return err
	}
	all, lost := []mirrorLag{}, 0
	for _, x := range source.Topics {
		if !m.matches(x.Topic) {
			continue
		}
		for _, p := range x.Partitions {
			var at copyState
			if t := saved.Topics[x.Topic]; t != nil && t.SourceID == x.ID {
				at = t.Partitions[p.Partition]
			}
			l := m.lagOf(cmd.Context(), partitionLog{&m.from.Client, x.Topic, x.ID, p.Partition}, at)
			if l.WentBack {
				lost++
			}
			all = append(all, l)
		}
	}
	err = cli.Print(cmd, m.t, all, func(w io.Writer) {
		fmt.Fprintln(w, "TOPIC\tPARTITION\tNEXT\tEND\tLAG")
		for _, l := range all {
			fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\n", l.Topic, l.Partition, l.Next, cli.Known(l.End, "%d"), cli.Known(l.Lag, "%d"))
		}
	})
	if lost > 0 {
		err = errors.Join(err, fmt.Errorf("the source has lost messages of %s that were copied%s; mirror run copies what it has now", cli.Count(lost, "partition"), wentBack))
	}
	return err
}

// lagOf compares what is copied with the leader of the source.
func (m *mirrorCommand) lagOf(ctx context.Context, s partitionLog, at copyState) mirrorLag {
	l := mirrorLag{Topic: s.topic, Partition: s.partition, Next: at.Next}
	page, err := s.page(ctx, fmt.Sprint(at.Next), 0)
	if err != nil {
		return l
	}
	l.End = &page.End
	if page.End < at.Next || at.Mark != "" && page.Mark != "" && at.Mark != page.Mark {
		l.WentBack = true
		return l
	}
	lag := page.End - at.Next
	l.Lag = &lag
	return l
}
