package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/time/rate"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
)

const mirrorState = "lockstep-mirror.json" // the default name of the state file

// Commands are export, import and mirror.
func Commands(t *cli.Target) []*cobra.Command {
	return []*cobra.Command{newExport(t), newImport(t), newMirror(t)}
}

func newMirror(t *cli.Target) *cobra.Command {
	m := &mirrorCommand{t: t}
	cmd := &cobra.Command{
		Use:   "mirror",
		Short: "copy topics of another Lockstep cluster to this one, continuously",
		Long: `mirror copies topics of another cluster, the source, to this one, the target:

  nsqctl mirror run       copies until it is stopped, and continues where it stopped
  nsqctl mirror status    shows how far it is

The flags --from-… name the source; --nsqd-http-address names the brokers of the target. docs/guide/mirror.md has the
steps, what is preserved, and how a mirror behaves after a failure.`,
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
	return !strings.HasSuffix(topic, api.EphemeralSuffix) && slices.ContainsFunc(m.patterns, func(p string) bool {
		ok, _ := path.Match(p, topic) // prepare has checked the patterns
		return ok
	})
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
		Long: `run copies every topic whose name matches: messages with their headers, delays and partitions, in order,
and the durable channels with their positions. It creates missing topics, partitions and channels at the target, also
later ones. A put that the target refuses, such as a message that is too large for it, is repeated every 10 s and delays
its partition alone. Both sides may fail or be cut off at any time: run waits and continues with the next message. Every
message is copied once: a put without an answer is repeated, and the target recognises it within the dedupe window of
the topic. After the window the messages of that put, at most --batch for each partition, may be there twice.

Each copy has the header ##origin, the place of its original. The progress is therefore in the target itself; the file
--state only shortens the start. Run one at a time for a topic.

Channels of the target without consumers follow the source's; they move forward only. A message that came from the
target is not copied back, so two mirrors may run in opposite directions.

Ctrl-C or SIGTERM waits up to 5 s for the puts in flight. --metrics-address serves the lag to Prometheus.`,
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
		Long: `status compares the state file of nsqctl mirror run with the source: the messages of each partition that
were not copied when the file was written, at most a second ago while the mirror runs.`,
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
		err = errors.Join(err, fmt.Errorf("the source has lost messages of %s that were copied%s; mirror run copies what it has now", api.Count(lost, "partition"), wentBack))
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

const (
	mirrorGrace   = 5 * time.Second // how long a stop waits for the puts in flight
	caughtUpPolls = 3               // how often in a row a mirror without anything left is seen before --until-caught-up ends
	maxMirrored   = 16 << 20        // the largest message that the throttle of bytes takes at once
)

// mirroring is one run of a mirror. One goroutine owns it, and a goroutine for each link copies.
type mirroring struct {
	*mirrorCommand
	first string
	copyOptions
	bytesRate      int
	poll           time.Duration
	untilCaughtUp  bool
	metricsAddress string
	reporter       *cli.Reporter
	source         string // its name
	progress       *mirrorProgress
	links          map[linkKey]*mirrorLink
	linksMu        sync.Mutex   // the metrics read links
	past           mirrorCounts // of links that have ended
	byteLimit      *rate.Limiter
	failed         chan error
	running        sync.WaitGroup
	began          time.Time
	caughtUp       int // polls in a row
	puts           context.Context
}

type mirrorCounts struct {
	copied, skipped, doubts, rewinds int64
	missed                           uint64
}

func (c *mirrorCounts) add(l *mirrorLink) {
	c.copied += l.copied.Load()
	c.skipped += l.skipped.Load()
	c.doubts += l.p.view().doubts
	c.missed += l.missed.Load()
	c.rewinds += l.rewinds.Load()
}

func (o *mirroring) run(cmd *cobra.Command) error {
	ctx := cmd.Context()
	o.reporter = cli.NewReporter(cmd.ErrOrStderr())
	lock := flock.New(o.state + ".lock")
	if ok, err := lock.TryLock(); err != nil {
		return fmt.Errorf("--state: %w", err)
	} else if !ok {
		return fmt.Errorf("another mirror uses %s: run one at a time", o.state)
	}
	defer func() { _ = lock.Unlock() }()
	source, _, err := o.clusters(ctx)
	if err != nil {
		return err
	}
	o.source, o.began = source.Cluster, time.Now()
	if o.progress, err = loadMirror(o.state); err != nil {
		return err
	}
	o.links, o.failed = map[linkKey]*mirrorLink{}, make(chan error, 1)
	o.byteLimit = limiter(o.bytesRate, max(copyBatchBytes, maxMirrored))
	stopMetrics, err := o.serveMetrics()
	if err != nil {
		return err
	}
	defer stopMetrics()
	puts, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	o.puts = puts
	defer context.AfterFunc(ctx, func() {
		concurrency.Sleep(puts, mirrorGrace)
		cancel()
	})()
	err = o.loop(ctx)
	for _, l := range o.links {
		l.cancel()
	}
	o.running.Wait()
	err = errors.Join(err, o.save())
	return o.finish(cmd, err)
}

// loop polls both clusters until ctx ends, a link fails, or nothing is left.
func (o *mirroring) loop(ctx context.Context) error {
	next := time.Now()
	tick := time.NewTicker(min(cli.SaveEvery, o.poll))
	defer tick.Stop()
	for {
		if now := time.Now(); !now.Before(next) {
			next = now.Add(o.poll)
			if err := o.refresh(ctx); err != nil && ctx.Err() == nil {
				if final := new(cli.ExitError); brokerapi.Refused(err) || errors.As(err, final) {
					return err
				}
				o.caughtUp = 0
				o.reporter.About("poll", fmt.Sprintf("%s; next try in %s", oneLine(err.Error()), o.poll))
			}
			if o.untilCaughtUp && o.caughtUp >= caughtUpPolls {
				return nil
			}
		}
		select {
		case <-tick.C:
		case err := <-o.failed:
			return err
		case <-ctx.Done():
			return nil // Ctrl-C is the way to stop it
		}
		if o.progress.file.Due() {
			if err := o.save(); err != nil {
				return err
			}
		}
		o.reporter.Progress(func() string {
			all, lag := o.counts()
			return fmt.Sprintf("partitions: %d, messages copied: %d, left: %d", len(o.links), all.copied, lag)
		})
	}
}

// refresh creates what is missing at the target, starts links, and moves channels.
func (o *mirroring) refresh(ctx context.Context) error {
	source, _, err := o.clusters(ctx)
	if err != nil {
		return err
	}
	var failed []error
	there := map[string]ident.TopicID{}
	for _, topic := range source.Topics {
		there[topic.Topic] = topic.ID
	}
	topics := slices.DeleteFunc(source.Topics, func(t api.TopicView) bool { return !o.matches(t.Topic) })
	if len(topics) == 0 {
		err := fmt.Errorf("the source has no topic that matches %s", strings.Join(o.patterns, " "))
		if o.untilCaughtUp {
			return cli.ExitError{Code: cli.ExitNotFound, Err: err}
		}
		failed = append(failed, err)
	}
	for key, l := range o.links {
		if there[key.topic] != l.from.id {
			o.unlink(l) // its topic was deleted, or another topic has the name
		}
	}
	for _, topic := range topics {
		if err := o.topic(ctx, topic); err != nil {
			err = fmt.Errorf("topic %s: %w", topic.Topic, err)
			if brokerapi.Refused(err) && !gone(err) {
				return err
			}
			failed = append(failed, err)
		}
	}
	left := len(failed) > 0 || len(o.links) == 0
	for _, l := range o.links {
		left = left || !l.ready.Load() || l.lag() > 0 || l.answered.Load() == 0
	}
	if o.caughtUp++; left {
		o.caughtUp = 0
	}
	return errors.Join(failed...)
}

func (o *mirroring) topic(ctx context.Context, topic api.TopicView) error {
	view, err := ensureCopy(ctx, &o.t.Client, topic.Topic, len(topic.Partitions), topic.Ordered)
	if at := o.progress.Topics[topic.Topic]; errors.Is(err, errFewerPartitions) && at != nil && at.SourceID == topic.ID && at.TargetID == view.ID {
		return o.raise(ctx, topic)
	}
	if err != nil {
		return err
	}
	for _, p := range topic.Partitions {
		o.link(ctx, linkKey{topic.Topic, p.Partition}, topic.ID, view.ID)
	}
	if o.noChannels {
		return nil
	}
	return o.channels(ctx, topic.Topic)
}

// raise gives the copy of a topic the partitions that the topic has received since. The next poll starts their links.
func (o *mirroring) raise(ctx context.Context, topic api.TopicView) error {
	q := url.Values{"topic": {topic.Topic}, "partitions": {strconv.Itoa(len(topic.Partitions))}}
	if topic.Ordered || topic.Dedupe == option.DedupeContent {
		q.Set("reorder", "true") // as at the source: the copies stay in their partitions
	}
	return o.t.PostAny(ctx, "/v1/topic/partitions", q, nil)
}

// link starts the link of a partition, unless it runs between these two topics.
func (o *mirroring) link(ctx context.Context, key linkKey, sourceID, targetID ident.TopicID) {
	if l := o.links[key]; l != nil {
		if l.from.id == sourceID && l.p.log.id == targetID && l.puts.Err() == nil {
			return
		}
		o.unlink(l) // one of the topics was deleted and created again
	}
	at := o.progress.Topics[key.topic]
	if at == nil || at.SourceID != sourceID || at.TargetID != targetID {
		at = &mirrorTopic{SourceID: sourceID, TargetID: targetID, Partitions: map[int]copyState{}}
		o.progress.Topics[key.topic] = at
	}
	saved, known := at.Partitions[key.partition]
	running, cancel := context.WithCancel(ctx)
	puts, drop := context.WithCancel(o.puts)
	l := &mirrorLink{o: o, cancel: cancel, drop: drop, puts: puts, done: make(chan struct{})}
	l.from = partitionLog{&o.from.Client, key.topic, sourceID, key.partition}
	origin := msgstream.Origin{Cluster: o.source, TopicID: sourceID, Partition: uint16(key.partition)}
	l.p = newCopier(partitionLog{&o.t.Client, key.topic, targetID, key.partition}, origin, saved, func(text string) {
		o.reporter.About(fmt.Sprint("target ", l), oneLine(text))
	})
	o.linksMu.Lock()
	o.links[key] = l
	o.linksMu.Unlock()
	o.running.Go(func() {
		defer close(l.done)
		defer drop()
		defer cancel()
		l.run(running, known)
	})
}

// unlink ends a link and waits for its end, so that none of its puts comes after those of its successor.
func (o *mirroring) unlink(l *mirrorLink) {
	l.cancel()
	l.drop()
	<-l.done
	o.past.add(l)
	o.linksMu.Lock()
	defer o.linksMu.Unlock()
	delete(o.links, linkKey{l.from.topic, l.from.partition})
}

// channels creates the channels of a topic at the target, and moves those without consumers forward.
func (o *mirroring) channels(ctx context.Context, topic string) error {
	channels, err := readChannels(ctx, &o.from.Client, topic)
	if err != nil {
		return fmt.Errorf("the source: %w", err)
	}
	for _, ch := range channels {
		if _, err := ensureCopiedChannel(ctx, &o.t.Client, topic, ch); err != nil {
			return fmt.Errorf("channel %s: %w", ch.Name, err)
		}
	}
	at, err := channelPositions(ctx, &o.t.Client, topic)
	if err != nil {
		return err
	}
	lowest := map[int]uint64{}
	for _, x := range at {
		low := positionOf(x).Low()
		if before, known := lowest[x.Partition]; known {
			low = min(low, before)
		}
		lowest[x.Partition] = low
		l := o.links[linkKey{topic, x.Partition}]
		below, ok := finishedBelow(channels, x)
		if l == nil || !l.ready.Load() || !ok || x.Consumers > 0 {
			continue
		}
		spans, _ := l.p.toFinish(x, finished{Below: below})
		if _, err := finishCopies(ctx, &o.t.Client, topic, l.p.log.id, x, spans); err != nil {
			return fmt.Errorf("channel %s: %w", x.Channel, err)
		}
	}
	for partition, low := range lowest {
		if l := o.links[linkKey{topic, partition}]; l != nil {
			l.p.forget(low)
		}
	}
	return nil
}

// finishedBelow is the first message that the channel of the source has not finished, deferred ones included.
func finishedBelow(channels []msgstream.Channel, x api.ChannelPosition) (below uint64, ok bool) {
	for _, ch := range channels {
		for _, at := range ch.Positions {
			if ch.Name == x.Channel && at.Partition == x.Partition {
				return at.Low(), true
			}
		}
	}
	return 0, false
}

func (o *mirroring) save() error {
	for key, l := range o.links {
		switch at := o.progress.Topics[key.topic].Partitions; {
		case l.ready.Load():
			at[key.partition] = l.p.state()
		case l.p.view().comparing:
			delete(at, key.partition) // it begins again if it is broken off
		}
	}
	return o.progress.file.Save(o.progress)
}

func (o *mirroring) counts() (all mirrorCounts, lag uint64) {
	all = o.past
	for _, l := range o.links {
		all.add(l)
		lag += l.lag()
	}
	return all, lag
}

func (o *mirroring) finish(cmd *cobra.Command, err error) error {
	all, lag := o.counts()
	caughtUp := err == nil && o.caughtUp >= caughtUpPolls
	o.reporter.Clear()
	return errors.Join(err, cli.Print(cmd, o.t, map[string]any{
		"copied": all.copied, "left": lag, "puts_in_doubt": all.doubts, "not_copied_back": all.skipped, "missed": all.missed,
		"rewinds": all.rewinds, "caught_up": caughtUp,
	}, func(w io.Writer) {
		fmt.Fprintf(w, "%s copied in %s; repeated without an answer: %s", api.Count(all.copied, "message"), time.Since(o.began).Round(time.Millisecond), api.Count(all.doubts, "put"))
		if all.skipped > 0 {
			fmt.Fprintf(w, "; not copied back to where it came from: %s", api.Count(all.skipped, "message"))
		}
		if all.rewinds > 0 {
			fmt.Fprintf(w, "; a side had lost messages that were copied: %s", api.Count(all.rewinds, "time"))
		}
		fmt.Fprintln(w, cli.Mark(caughtUp, "; nothing is left"))
	}))
}

// serveMetrics serves GET /metrics; stop ends it.
func (o *mirroring) serveMetrics() (stop func(), err error) {
	if o.metricsAddress == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", o.metricsAddress)
	if err != nil {
		return nil, fmt.Errorf("--metrics-address: %w", err)
	}
	r := prometheus.NewRegistry()
	r.MustRegister(o)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{}))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) }) // ErrServerClosed
	return func() { _ = s.Close(); serving.Wait() }, nil
}

// mirrorProgress is the content of the state file of a mirror.
type mirrorProgress struct {
	Version int                     `json:"v"`
	Topics  map[string]*mirrorTopic `json:"topics"`
	file    cli.StateFile
}

// mirrorTopic is the progress between two topics: one that is deleted and created again has another id.
type mirrorTopic struct {
	SourceID   ident.TopicID     `json:"source_id"`
	TargetID   ident.TopicID     `json:"target_id"`
	Partitions map[int]copyState `json:"partitions"`
}

func loadMirror(name string) (*mirrorProgress, error) {
	s := &mirrorProgress{Version: 1, Topics: map[string]*mirrorTopic{}}
	var err error
	s.file, err = cli.LoadState(name, s, func() bool { return s.Version == 1 && s.Topics != nil },
		"the state of a mirror; without it a mirror reads its progress from the target, which takes longer")
	return s, err
}

type mirrorMetric struct {
	name, help string
	kind       prometheus.ValueType
	value      func(l *mirrorLink) float64
}

const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue

// mirrorMetrics are the metrics of a mirror; docs/guide/mirror.md lists them.
var mirrorMetrics = []mirrorMetric{
	{"lag_messages", "Messages of the source that are not in the target.", gauge, func(l *mirrorLink) float64 { return float64(l.lag()) }},
	{"lag_seconds", "Age of the first message that is not in the target, or the time since the source last answered.", gauge,
		func(l *mirrorLink) float64 { return l.age(time.Now()).Seconds() }},
	{"messages_total", "Messages that this process copied.", counter, func(l *mirrorLink) float64 { return float64(l.copied.Load()) }},
	{"bytes_total", "Bytes of bodies and headers that this process copied.", counter, func(l *mirrorLink) float64 { return float64(l.bytes.Load()) }},
	{"repeated_puts_total", "Puts that were repeated because their fate was unknown. The target recognises them within its dedupe window.", counter,
		func(l *mirrorLink) float64 { return float64(l.p.view().doubts) }},
	{"missed_messages_total", "Messages that retention removed from the source before they were copied.", counter, func(l *mirrorLink) float64 { return float64(l.missed.Load()) }},
	{"rewinds_total", "Times that the source or the target had lost messages that were copied.", counter, func(l *mirrorLink) float64 { return float64(l.rewinds.Load()) }},
	{"returned_messages_total", "Messages that came from the target and were not copied back.", counter, func(l *mirrorLink) float64 { return float64(l.skipped.Load()) }},
}

// Describe implements prometheus.Collector: without links there are no metrics.
func (o *mirroring) Describe(chan<- *prometheus.Desc) {}

func (o *mirroring) Collect(out chan<- prometheus.Metric) {
	o.linksMu.Lock()
	links := slices.Collect(maps.Values(o.links))
	o.linksMu.Unlock()
	for _, m := range mirrorMetrics {
		desc := prometheus.NewDesc("lockstep_mirror_"+m.name, m.help, []string{"topic", "partition"}, nil)
		for _, l := range links {
			out <- prometheus.MustNewConstMetric(desc, m.kind, m.value(l), l.from.topic, strconv.Itoa(l.from.partition))
		}
	}
}
