package migration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/publisher"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/stockdata"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	putTimeout  = 15 * time.Second       // the longest wait for an answer: a broker answers within its --put-hold, 9 s
	importState = "lockstep-import.json" // the default name of the state file, in the data path
	growthWait  = 15 * time.Second       // how long an import waits for the brokers' reports of their logs
)

func newImportNSQD(t *cli.Target) *cobra.Command {
	var o importing
	cmd := &cobra.Command{
		Use:   "import-nsqd DATA_PATH",
		Short: "publish the messages in the data path of a stopped stock nsqd",
		Long: `import-nsqd reads nsqd.dat and the disk queues of a stopped stock nsqd (1.x), creates its topics and
channels, and publishes each channel's backlog for that channel alone. Messages that only the topic has (it was paused,
or had no channel) are published for each of its channels. Deferred and requeued messages are part of the backlog: nsqd
writes them there when it stops, without their delay. Paused topics and channels are paused.

It publishes at least all messages that this nsqd would deliver after a restart, also after kill -9: an unfinished
record at the end of a file is left out, as nsqd does, and messages behind the positions of the metadata are included.
Messages that nsqd had only in memory when it was killed are in no file. Lost: message ids, times of publication, counts
of attempts.

The data path stays as it is, but for the state file (--state): after an interruption the same command continues, with
at most the last second twice. After the end it publishes nothing again. The data path of a running nsqd is refused, and
so is one that an nsqd has used since the import began. Ctrl-C stops it.

The table at the end has for each queue the messages that nsqd's metadata counts (after a kill it is behind), the
messages read, and the messages that the brokers answered OK. The command compares the latter two, and the growth of the
topics' logs.`,
		Example: `  nsqctl import-nsqd /var/lib/nsqd --dry-run     # read and count, connect to no broker
  nsqctl import-nsqd /var/lib/nsqd
  nsqctl import-nsqd /mnt/readonly/nsqd --state ./nsqd1.json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.t, o.cmd = t, cmd
			if o.stateFile == "" {
				o.stateFile = filepath.Join(args[0], importState)
			}
			return o.run(cmd.Context(), args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.stateFile, "state", "", "file with the progress; default: "+importState+" in the data path")
	f.BoolVar(&o.dry, "dry-run", false, "read and count only")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print no progress")
	return cmd
}

// importing is one import. Its fields change only in the goroutine of run, and in the publisher's
// while run waits for it.
type importing struct {
	t          *cli.Target
	cmd        *cobra.Command
	stateFile  string
	dry, quiet bool
	state      *importProgress
	reporter   *cli.Reporter
	path       *stockdata.Path
	damage     []stockdata.Damage
}

// part is one queue and the channel that receives its messages.
type part struct {
	topic, channel string // channel "": for all channels
	own            bool   // the topic's own queue
	queue          *stockdata.Queue
}

type partReport struct {
	Topic     string `json:"topic"`
	Channel   string `json:"channel,omitempty"`
	Source    string `json:"source"` // "channel": the channel's queue; "topic": the topic's
	Counted   *int64 `json:"counted,omitempty"`
	Read      int64  `json:"read"`
	Published int64  `json:"published"`
}

// topicGrowth compares the messages of a topic with the growth of its log.
type topicGrowth struct {
	Topic     string `json:"topic"`
	Published int64  `json:"published"`
	Growth    int64  `json:"growth"`
}

func (o *importing) run(ctx context.Context, dir string) error {
	path, err := stockdata.Open(dir)
	if err != nil {
		return err
	}
	defer path.Close()
	o.path, o.reporter = path, cli.NewReporter(o.cmd.ErrOrStderr())
	if !o.dry {
		if o.state, err = loadImport(o.stateFile); err != nil {
			return err
		}
		if err := o.prepare(ctx); err != nil {
			return err
		}
	}
	o.notes()
	var reports []partReport
	for i := range path.Topics {
		rows, err := o.topic(ctx, &path.Topics[i])
		reports = append(reports, rows...)
		if err != nil {
			o.reporter.Clear()
			if !o.dry {
				err = fmt.Errorf("%w\nthe same command continues: %s has the progress", err, o.stateFile)
			}
			return err
		}
	}
	o.reporter.Clear()
	return o.report(ctx, reports)
}

// notes prints the signs that the nsqd was not stopped cleanly.
func (o *importing) notes() {
	note := func(format string, args ...any) { fmt.Fprintf(o.cmd.ErrOrStderr(), "note: "+format+"\n", args...) }
	check := func(s stockdata.Source, kind, of string, listed bool) {
		if s.Unlisted && listed {
			note("nsqd.dat does not name %s %s%s, which has messages: nsqd would deliver them when a client names the %s", kind, s.Name, of, kind)
		}
		if s.Queue.Overwritten() {
			note("%s %s%s has no metadata: nsqd would overwrite its messages; they are included", kind, s.Name, of)
		}
	}
	for _, topic := range o.path.Topics {
		check(topic, "topic", "", true)
		for _, channel := range topic.Channels {
			check(channel, "channel", " of "+topic.Name, !topic.Unlisted)
		}
	}
}

// prepare checks the state file against data path and cluster, and creates all topics and channels before any message.
func (o *importing) prepare(ctx context.Context) error {
	if err := o.state.unchanged(o.path); err != nil {
		return fmt.Errorf("%s: %w", o.stateFile, err)
	}
	for _, topic := range o.path.Topics {
		if err := ensureTopic(ctx, o.t, topic.Name); err != nil {
			return err
		}
		for _, channel := range topic.Channels {
			if _, err := o.t.CreateChannel(ctx, topic.Name, channel.Name, nil); err != nil {
				return err
			}
			if err := o.pauseOnce(ctx, topic.Name, channel.Name, channel.Paused); err != nil {
				return err
			}
		}
	}
	if err := o.begin(ctx); err != nil {
		return err
	}
	return o.state.save()
}

// begin records the topics of the cluster. The broker that is asked may learn of a new topic a moment later.
func (o *importing) begin(ctx context.Context) error {
	return o.withinGrowthWait(ctx, func(v api.ClusterView) (again bool, err error) {
		for _, topic := range o.path.Topics {
			err = errors.Join(err, o.state.begin(topic.Name, v))
		}
		if err != nil {
			again, err = errors.Is(err, errNotListed) || errors.Is(err, errNotKnown), fmt.Errorf("%s: %w", o.stateFile, err)
		}
		return again, err
	})
}

// withinGrowthWait reevaluates the view of the cluster until the result is final or growthWait has passed.
func (o *importing) withinGrowthWait(ctx context.Context, judge func(api.ClusterView) (again bool, err error)) error {
	for deadline := time.Now().Add(growthWait); ; {
		v, err := o.t.Cluster(ctx)
		if err != nil {
			return err
		}
		again, err := judge(v)
		if !again || time.Now().After(deadline) {
			return err
		}
		if !concurrency.Sleep(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
}

// pauseOnce pauses a topic or channel that the stock nsqd has paused, only once: an operator may unpause it later.
func (o *importing) pauseOnce(ctx context.Context, topic, channel string, paused bool) error {
	key := partKey(topic, channel, channel == "")
	if !paused || o.state.Paused[key] {
		return nil
	}
	if err := pause(ctx, o.t, topic, channel); err != nil {
		return err
	}
	o.state.Paused[key] = true
	return o.state.save()
}

// parts lists the queues of a topic: the queues of the channels, which have the older messages, before the queue of the
// topic.
func parts(topic *stockdata.Source) (all []part) {
	for _, c := range topic.Channels {
		all = append(all, part{topic.Name, c.Name, false, c.Queue})
	}
	for _, c := range topic.Channels {
		all = append(all, part{topic.Name, c.Name, true, topic.Queue})
	}
	if len(all) == 0 {
		all = append(all, part{topic.Name, "", true, topic.Queue})
	}
	return all
}

// partKey names a part in the state file: TOPIC:CHANNEL, TOPIC>CHANNEL for the topic's own queue.
func partKey(topic, channel string, own bool) string {
	if own {
		return topic + ">" + channel
	}
	return topic + ":" + channel
}

func (o *importing) topic(ctx context.Context, topic *stockdata.Source) (rows []partReport, err error) {
	for i, p := range parts(topic) {
		if p.own && !o.dry {
			if err := o.pauseOnce(ctx, topic.Name, "", topic.Paused); err != nil {
				return rows, err
			}
		}
		row := partReport{Topic: p.topic, Channel: p.channel, Source: "channel"}
		if p.own {
			row.Source = "topic"
		}
		if n, ok := p.queue.Depth(); ok {
			row.Counted = &n
		}
		// The damage of a topic's queue, which is read for each channel, is reported once.
		report := !p.own || i == len(topic.Channels)
		row.Read, row.Published, err = o.part(ctx, p, report)
		if !p.own || row.Read > 0 || row.Counted == nil || *row.Counted != 0 {
			rows = append(rows, row)
		}
		if err != nil {
			return rows, fmt.Errorf("%s: %w", p.name(), err)
		}
	}
	return rows, nil
}

func (p part) name() string {
	if p.channel == "" {
		return "topic " + p.topic
	}
	return fmt.Sprintf("topic %s, channel %s", p.topic, p.channel)
}

// part publishes the messages that the state file does not count yet, or only counts the messages. The counts include
// earlier runs.
func (o *importing) part(ctx context.Context, p part, report bool) (read, published int64, err error) {
	done := &partProgress{Position: p.queue.Start()}
	if !o.dry {
		done = o.state.part(p)
	}
	r := p.queue.Read(done.Position)
	defer r.Close()
	began := done.Published // an earlier run
	b := &backlog{p: p, r: r, out: make(chan publisher.Message, 1000), progress: done, early: map[int64]stockdata.Position{}, after: func() error { return o.saved(p, done) }}
	reading := make(chan error, 1)
	sending, stop := context.WithCancel(ctx)
	defer stop()
	go func() { reading <- b.feed(sending) }()
	if o.dry {
		for range b.out {
		}
		err = <-reading
	} else {
		_, err = publisher.Send(sending, b.out, messageOptions(o.t, o.reporter.Report))
		stop()
		err = cmp.Or(err, <-reading, b.failed, o.state.save())
	}
	if err == nil && report {
		o.reporter.Clear()
		o.damage = append(o.damage, r.Damage...)
		for _, d := range r.Damage {
			fmt.Fprintf(o.cmd.ErrOrStderr(), "left out, as nsqd does: %s\n", d)
		}
	}
	return began + b.read, done.Published, err
}

// saved shows the progress, and saves it once a second.
func (o *importing) saved(p part, done *partProgress) error {
	if !o.state.file.Due() {
		return nil
	}
	if !o.quiet && cli.IsTerminal(o.cmd.ErrOrStderr()) {
		of := ""
		if n, ok := p.queue.Depth(); ok {
			of = fmt.Sprintf(" of %d", n)
		}
		o.reporter.Progress(func() string { return fmt.Sprintf("%s: %d%s messages", p.name(), done.Published, of) })
	}
	return o.state.save()
}

// backlog passes the messages of a part to a publisher, and follows their answers. feed runs in a
// goroutine of its own and owns r and read; stored runs in the publisher's goroutine and owns the rest.
type backlog struct {
	p    part
	r    *stockdata.Reader
	out  chan publisher.Message
	read int64

	progress *partProgress
	next     int64                        // the first message without an answer, from 0
	early    map[int64]stockdata.Position // positions after messages that were answered before an earlier one
	after    func() error
	failed   error
}

func (b *backlog) feed(ctx context.Context) error {
	defer close(b.out)
	header := onlyFor(b.p.channel)
	for {
		m, err := b.r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		n, behind := b.read, b.r.Position()
		select {
		case b.out <- publisher.Message{Topic: b.p.topic, Header: header, Body: m[stockdata.HeaderSize:], Stored: func() { b.stored(n, behind) }}:
			b.read++
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stored counts a message that was answered OK. The saved position moves only past messages without a gap, because a
// refused put is answered after later ones.
func (b *backlog) stored(n int64, behind stockdata.Position) {
	b.early[n] = behind
	for {
		behind, there := b.early[b.next]
		if !there {
			break
		}
		delete(b.early, b.next)
		b.next++
		b.progress.Position = behind
		b.progress.Published++
	}
	if err := b.after(); b.failed == nil {
		b.failed = err
	}
}

func (o *importing) report(ctx context.Context, rows []partReport) error {
	var growths []topicGrowth
	var faults []error
	if !o.dry {
		var err error
		growths, err = o.growths(ctx, rows)
		faults = append(faults, err)
		for _, row := range rows {
			if row.Published != row.Read {
				faults = append(faults, fmt.Errorf("topic %s, channel %s: %d messages were read and %d published", row.Topic, row.Channel, row.Read, row.Published))
			}
		}
	}
	answer := map[string]any{"nsqd_version": o.path.Version, "dry_run": o.dry, "queues": rows, "topics": growths, "left_out": len(o.damage)}
	if err := cli.Print(o.cmd, o.t, answer, func(w io.Writer) { o.print(w, rows, growths) }); err != nil {
		return err
	}
	return errors.Join(faults...)
}

// growths compares the published messages of each topic with the growth of its log since the
// import began. Brokers report their logs every few seconds.
func (o *importing) growths(ctx context.Context, rows []partReport) (all []topicGrowth, err error) {
	err = o.withinGrowthWait(ctx, func(v api.ClusterView) (again bool, err error) {
		var short []error
		all = nil
		for _, topic := range o.path.Topics {
			grown, err := o.state.growth(topic.Name, v)
			if err != nil {
				short = append(short, err)
				continue
			}
			g := topicGrowth{Topic: topic.Name, Growth: grown}
			for _, row := range rows {
				if row.Topic == topic.Name {
					g.Published += row.Published
				}
			}
			all = append(all, g)
			if g.Growth < g.Published {
				short = append(short, fmt.Errorf("topic %s: %d messages were published, and its log has grown by %d: the topic was deleted, or this is another cluster", g.Topic, g.Published, g.Growth))
			}
		}
		return len(short) > 0, errors.Join(short...)
	})
	return all, err
}

func (o *importing) print(w io.Writer, rows []partReport, growths []topicGrowth) {
	fmt.Fprintln(w, "TOPIC\tCHANNEL\tQUEUE OF THE\tCOUNTED\tREAD\tPUBLISHED")
	var read, published int64
	for _, row := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\n", row.Topic, cmp.Or(row.Channel, "(all)"), row.Source, cli.Known(row.Counted, "%d"), row.Read, row.Published)
		read, published = read+row.Read, published+row.Published
	}
	fmt.Fprintf(w, "total\t\t\t\t%d\t%d\n", read, published)
	more := false
	for _, g := range growths {
		if g.Growth > g.Published {
			more = true
			fmt.Fprintf(w, "the log of %s has grown by %d, and not by %d: others publish to it, or puts in doubt were repeated\n", g.Topic, g.Growth, g.Published)
		}
	}
	if !o.dry && !more {
		fmt.Fprintln(w, "the logs of the topics have grown by exactly these numbers")
	}
}

// errNotKnown means that the cluster did not report how many messages a topic has had.
var errNotKnown = errors.New("the number of messages is unknown")

// errNotListed means that a broker has not seen a new topic yet.
var errNotListed = errors.New("the cluster does not list a topic that was created")

// importProgress is the content of the state file of an import.
type importProgress struct {
	Version int                      `json:"v"`
	Topics  map[string]topicProgress `json:"topics"`
	Queues  map[string]string        `json:"queues"` // fingerprints of the data path
	Parts   map[string]*partProgress `json:"parts"`
	Paused  map[string]bool          `json:"paused"`
	file    cli.StateFile
}

// topicProgress is a topic of the cluster when the import began.
type topicProgress struct {
	ID       ident.TopicID `json:"id"`
	Messages int64         `json:"messages"` // that it had had
}

type partProgress struct {
	Position  stockdata.Position `json:"position"` // after the messages that were all answered OK
	Published int64              `json:"published"`
}

func loadImport(name string) (*importProgress, error) {
	s := &importProgress{
		Version: 1, Topics: map[string]topicProgress{}, Queues: map[string]string{},
		Parts: map[string]*partProgress{}, Paused: map[string]bool{},
	}
	var err error
	s.file, err = cli.LoadState(name, s, func() bool { return s.Version == 1 }, "the state of an import; to publish everything again, delete it")
	return s, err
}

func (s *importProgress) save() error { return s.file.Save(s) }

// unchanged records the data path at the beginning, and later returns an error if an nsqd has changed it.
func (s *importProgress) unchanged(p *stockdata.Path) error {
	now := map[string]string{}
	for _, topic := range p.Topics {
		now[topic.Name] = topic.Queue.Fingerprint()
		for _, c := range topic.Channels {
			now[partKey(topic.Name, c.Name, false)] = c.Queue.Fingerprint()
		}
	}
	if len(s.Queues) == 0 && len(s.Parts) == 0 {
		s.Queues = now
		return nil
	}
	for name, print := range now {
		if s.Queues[name] != print {
			return fmt.Errorf("an nsqd has changed the queue %s since this import began: the rest cannot be distinguished from the published messages; to publish everything again, delete this file", name)
		}
	}
	for name := range s.Queues {
		if now[name] == "" {
			return fmt.Errorf("the queue %s has disappeared since this import began; to publish everything again, delete this file", name)
		}
	}
	return nil
}

// begin records a topic of the cluster, or reports that it is not the topic of an earlier run.
func (s *importProgress) begin(topic string, v api.ClusterView) error {
	i := slices.IndexFunc(v.Topics, func(x api.TopicView) bool { return x.Topic == topic })
	before, known := s.Topics[topic]
	switch {
	case i < 0:
		return fmt.Errorf("%w: %s", errNotListed, topic)
	case known && before.ID != v.Topics[i].ID:
		return fmt.Errorf("the topic %s was deleted since this import began, or this is another cluster; to publish everything again, delete this file", topic)
	case known:
		return nil
	}
	n, err := messagesOf(v.Topics[i])
	if err == nil {
		s.Topics[topic] = topicProgress{ID: v.Topics[i].ID, Messages: n}
	}
	return err
}

// growth is the number of messages that a topic has received since the import began.
func (s *importProgress) growth(topic string, v api.ClusterView) (int64, error) {
	before := s.Topics[topic]
	i := slices.IndexFunc(v.Topics, func(x api.TopicView) bool { return x.Topic == topic && x.ID == before.ID })
	if i < 0 {
		return 0, nil
	}
	n, err := messagesOf(v.Topics[i])
	return n - before.Messages, err
}

// messagesOf is the number of messages that a topic has had; errNotKnown if the leader of a partition did not report.
func messagesOf(x api.TopicView) (n int64, err error) {
	for _, p := range x.Partitions {
		if p.EndsUnknown {
			return 0, fmt.Errorf("%w of %s: the leader of partition %d does not answer", errNotKnown, x.Topic, p.Partition)
		}
		n += int64(p.CommittedSequence)
	}
	return n, nil
}

func (s *importProgress) part(p part) *partProgress {
	key := partKey(p.topic, p.channel, p.own)
	if s.Parts[key] == nil {
		s.Parts[key] = &partProgress{Position: p.queue.Start()}
	}
	return s.Parts[key]
}
