package transfer

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/ident"
)

func newImport(t *cli.Target) *cobra.Command {
	o := streaming{t: t}
	cmd := &cobra.Command{
		Use:   "import FILE|-",
		Short: "publish the stream of an export, and position its channels",
		Long: `import reads a stream of nsqctl export, verifies all of it, and then publishes its messages, each in the
partition that it had, in the same order. A stream that is torn or altered is refused with the place, before the first
message is published. "-" is stdin, which is copied to a temporary file first.

The topic and its channels are created if they are missing; a topic needs as many partitions as the stream has. A
channel is placed where the exported one was: messages that it had finished are not delivered, deferred ones are
delivered when they are due. A channel that has consumers stays where it is; one that exists moves forward only, and
never over messages of others.

Every copy has the header ##origin, the place of its original. After an interruption the same command reads the topic
and publishes what is missing: repeated, it publishes nothing. A put without an answer is repeated. If it was stored
after all, the topic recognises that within its dedupe window; after it the messages of that put, at most --batch, may
be there twice. Lost: message ids, sequences, times of publication, counts of attempts.`,
		Example: `  nsqctl import orders.lsx --dry-run      # verify and count; no broker is asked
  nsqctl import orders.lsx
  gunzip <orders.lsx.gz | nsqctl import - --topic orders-restored`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.valid(); err != nil {
				return err
			}
			return o.run(cmd, args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.topic, "topic", "", "topic to publish to; empty: the topic of the stream")
	f.BoolVar(&o.dry, "dry-run", false, "verify and count only")
	o.flags(f)
	return cmd
}

type streaming struct {
	t             *cli.Target
	topic         string
	dry, terminal bool
	copyOptions

	id         ident.TopicID // of the topic that receives the messages
	in         *os.File
	info       msgstream.Info
	end        msgstream.End
	channels   []importing
	partitions []*copier
	reporter   *cli.Reporter
	report     importedReport
}

// importing is a channel of the stream, with its deferred messages by their places.
type importing struct {
	msgstream.Channel
	deferred map[place]deferral
}

type place struct {
	partition uint16
	sequence  uint64
}

type deferral struct {
	msgstream.DeferredPosition
	confirmed uint64 // of the channel: copies below it are finished
}

func deferralsOf(ch msgstream.Channel) map[place]deferral {
	all := map[place]deferral{}
	for _, p := range ch.Positions {
		for _, d := range p.Deferred {
			all[place{uint16(p.Partition), uint64(d.Sequence)}] = deferral{d, p.Confirmed}
		}
	}
	return all
}

type importedReport struct {
	Topic    string            `json:"topic"`
	Cluster  string            `json:"from_cluster"`
	DryRun   bool              `json:"dry_run"`
	Stream   msgstream.End     `json:"stream"`
	Imported int64             `json:"imported"`
	There    int64             `json:"already_there"`
	Deferred int64             `json:"deferred"`
	Channels []importedChannel `json:"channels"`
	InDoubt  int64             `json:"puts_in_doubt"`
	Notes    []string          `json:"notes,omitempty"`
}

type importedChannel struct {
	Channel string `json:"channel"`
	Created bool   `json:"created"`
}

func (o *streaming) run(cmd *cobra.Command, name string) error {
	o.reporter, o.terminal = cli.NewReporter(cmd.ErrOrStderr()), cli.IsTerminal(cmd.ErrOrStderr())
	if err := o.open(cmd.InOrStdin(), name); err != nil {
		return err
	}
	defer o.in.Close()
	if err := o.each(cmd.Context(), nil); err != nil {
		return fmt.Errorf("%s: %w; nothing is published", name, err)
	}
	o.topic = cmp.Or(o.topic, o.info.Topic)
	o.report = importedReport{Topic: o.topic, Cluster: o.info.Cluster, DryRun: o.dry, Stream: o.end, Channels: []importedChannel{}}
	if !o.dry {
		if err := o.publish(cmd.Context()); err != nil {
			o.reporter.Clear()
			return fmt.Errorf("%w\npublished so far: %s; the same command continues", err, api.Count(o.report.Imported, "message"))
		}
	}
	o.reporter.Clear()
	return cli.Print(cmd, o.t, o.report, o.print)
}

func (o *streaming) open(stdin io.Reader, name string) (err error) {
	if name != "-" {
		o.in, err = os.Open(name)
		return err
	}
	if o.in, err = os.CreateTemp("", "lockstep-import-"); err != nil {
		return err
	}
	_ = os.Remove(o.in.Name()) // the space is free when the file is closed
	_, err = io.Copy(o.in, stdin)
	return err
}

// each reads the stream from its beginning, and verifies it to its end. It passes the messages to do, if that is set.
func (o *streaming) each(ctx context.Context, do func(*msgstream.Message) error) error {
	if _, err := o.in.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r := msgstream.NewReader(bufio.NewReaderSize(o.in, 1<<20))
	o.channels = nil
	for {
		x, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case x.Info != nil:
			o.info = *x.Info
		case x.Channel != nil:
			o.channels = append(o.channels, importing{*x.Channel, deferralsOf(*x.Channel)})
		case x.End != nil:
			o.end = *x.End
		case do != nil:
			if err := do(x.Message); err != nil {
				return err
			}
		}
	}
}

func (o *streaming) publish(ctx context.Context) error {
	view, err := ensureCopy(ctx, &o.t.Client, o.topic, len(o.info.Partitions), o.info.Ordered)
	if err != nil {
		return err
	}
	o.id = view.ID
	if o.info.Ordered && !view.Ordered {
		o.note("topic %s was ordered and %s is not: channels that consumers create deliver its messages in any order", o.info.Topic, o.topic)
	}
	for n := range o.info.Partitions {
		to := partitionLog{&o.t.Client, o.topic, view.ID, n}
		p := newCopier(to, msgstream.Origin{Cluster: o.info.Cluster, TopicID: o.info.TopicID, Partition: uint16(n)}, copyState{}, o.reporter.Report)
		p.comparing = true // copies of several histories of the source are distinguished from the start
		if err := within(ctx, electionWait, func() error { return p.resume(ctx) }); err != nil {
			return err
		}
		o.partitions = append(o.partitions, p)
	}
	if err := o.messages(ctx); err != nil {
		return err
	}
	for _, p := range o.partitions {
		p.settle(0)
	}
	if !o.noChannels {
		if err := o.placeChannels(ctx); err != nil {
			return err
		}
	}
	for _, p := range o.partitions {
		o.report.InDoubt += p.view().doubts
	}
	return nil
}

// copyEach publishes what choose returns of each message of the stream, for one channel alone if it is named.
func (o *streaming) copyEach(ctx context.Context, channel string, count *int64, choose func(*msgstream.Message) (*msgstream.Message, error)) error {
	b := copyBatcher{most: o.batch, put: o.putter(ctx, channel, count)}
	err := o.each(ctx, func(m *msgstream.Message) error {
		m, err := choose(m)
		if err != nil || m == nil {
			return err
		}
		return b.add(m)
	})
	if err == nil {
		err = b.flush()
	}
	return err
}

// putter returns the function that publishes a batch, and counts its messages.
func (o *streaming) putter(ctx context.Context, channel string, count *int64) func([]msgstream.Message, int) error {
	return func(messages []msgstream.Message, _ int) error {
		if err := o.messageLimit.WaitN(ctx, len(messages)); err != nil {
			return err
		}
		if err := o.partitions[messages[0].Partition].append(ctx, messages, channel); err != nil {
			return err
		}
		*count += int64(len(messages))
		if o.terminal {
			o.reporter.Progress(func() string {
				return fmt.Sprintf("%d of %d messages", o.report.Imported+o.report.There, o.end.Messages)
			})
		}
		return nil
	}
}

func (o *streaming) messages(ctx context.Context) error {
	return o.copyEach(ctx, "", &o.report.Imported, func(m *msgstream.Message) (*msgstream.Message, error) {
		if m.DeferredOnly {
			return nil, o.early(ctx, m)
		}
		if o.partitions[m.Partition].has(m, "") {
			o.report.There++
			return nil, nil
		}
		return m, nil
	})
}

// early publishes a deferred message whose sequence is below the first of the stream, for the ordered channels that have
// deferred it. It is published before the other messages of its partition, because an ordered channel delivers it first.
func (o *streaming) early(ctx context.Context, m *msgstream.Message) error {
	if o.noChannels {
		return nil
	}
	for _, ch := range o.channels {
		d, ok := ch.deferred[place{m.Partition, m.Sequence}]
		if !ok || !ch.Ordered || o.partitions[m.Partition].has(m, ch.Name) {
			continue
		}
		if d.Attempts > 0 {
			d.DeadlineNS = 0 // it failed: no later message overtakes it
		}
		if err := o.putter(ctx, ch.Name, &o.report.Deferred)([]msgstream.Message{*due(m, d.DeferredPosition)}, 0); err != nil {
			return fmt.Errorf("channel %s: %w", ch.Name, err)
		}
	}
	return nil
}

// due is a deferred message with the time of its next delivery.
func due(m *msgstream.Message, d msgstream.DeferredPosition) *msgstream.Message {
	x := *m
	if x.DeliverAtNS = d.DeadlineNS; d.DeadlineNS <= time.Now().UnixNano() {
		x.DeliverAtNS = 0
	}
	return &x
}

// placeChannels creates the channels, publishes their deferred messages, and moves them to their places.
func (o *streaming) placeChannels(ctx context.Context) error {
	channels := o.channels // deferred reads the stream again
	for _, ch := range channels {
		created, err := ensureCopiedChannel(ctx, &o.t.Client, o.topic, ch.Channel)
		if err != nil {
			return fmt.Errorf("channel %s: %w", ch.Name, err)
		}
		o.report.Channels = append(o.report.Channels, importedChannel{ch.Name, created})
	}
	for _, ch := range channels {
		if err := o.deferred(ctx, ch); err != nil {
			return fmt.Errorf("channel %s: %w", ch.Name, err)
		}
	}
	at, err := channelPositions(ctx, &o.t.Client, o.topic)
	if err != nil {
		return err
	}
	for _, ch := range channels {
		for _, p := range ch.Positions {
			if err := o.place(ctx, ch.Channel, p, at); err != nil {
				return fmt.Errorf("channel %s: %w", ch.Name, err)
			}
		}
	}
	return nil
}

// doneIn is what a channel of the stream has finished, or what is copied for the channel alone. An ordered
// channel delivers its deferred messages in their places in the log.
func doneIn(ch msgstream.Channel, p msgstream.Position) finished {
	done := finished{Below: p.Confirmed}
	if ch.Ordered {
		for _, d := range p.Deferred {
			done.Except = append(done.Except, uint64(d.Sequence))
		}
		slices.Sort(done.Except)
	}
	return done
}

// place finishes for a channel the copies that the exported one had finished in one partition.
func (o *streaming) place(ctx context.Context, ch msgstream.Channel, p msgstream.Position, at []api.ChannelPosition) error {
	for _, x := range at {
		if x.Channel != ch.Name || x.Partition != p.Partition {
			continue
		}
		part, done := o.partitions[p.Partition], doneIn(ch, p)
		want := part.placeOf(done.Below)
		spans, end := part.toFinish(x, done)
		effect, err := finishCopies(ctx, &o.t.Client, o.topic, o.id, x, spans)
		if err != nil {
			return err
		}
		switch {
		case effect.Stays:
			o.note("channel %s has consumers and stays where it is in partition %d", ch.Name, p.Partition)
		case end < want:
			o.note("channel %s is at %d of partition %d and not at %d: the topic has other messages in between", ch.Name, end, p.Partition, want)
		}
		if effect.Kept > 0 {
			o.note("channel %s delivers %d messages of partition %d again that the exported channel had finished: the channel has delivered them before and deferred them", ch.Name, effect.Kept, p.Partition)
		}
	}
	return nil
}

func (o *streaming) note(format string, args ...any) {
	o.report.Notes = append(o.report.Notes, fmt.Sprintf(format, args...))
}

// deferred publishes the deferred messages of a channel for that channel alone. An ordered channel has them
// already: in the log, or before the messages of the partition (early).
func (o *streaming) deferred(ctx context.Context, ch importing) error {
	for _, p := range ch.Positions {
		if p.Partition >= len(o.partitions) {
			return fmt.Errorf("a position in partition %d of %d", p.Partition, len(o.partitions))
		}
	}
	left := len(ch.deferred)
	if left == 0 {
		return nil
	}
	err := o.copyEach(ctx, ch.Name, &o.report.Deferred, func(m *msgstream.Message) (*msgstream.Message, error) {
		d, ok := ch.deferred[place{m.Partition, m.Sequence}]
		if !ok {
			return nil, nil
		}
		left--
		inLog := !m.DeferredOnly && (ch.Ordered || m.Sequence >= d.confirmed) // place does not finish that copy
		if inLog || o.partitions[m.Partition].has(m, ch.Name) {
			return nil, nil
		}
		return due(m, d.DeferredPosition), nil
	})
	if err == nil && left > 0 {
		o.note("channel %s: %d messages that it had deferred are not in the stream: they were finished while the topic was exported", ch.Name, left)
	}
	return err
}

func (o *streaming) print(w io.Writer) {
	fmt.Fprintln(w, "PARTITION\tMESSAGES\tDIGEST")
	for _, p := range o.end.Partitions {
		fmt.Fprintf(w, "%d\t%d\t%s\n", p.Partition, p.Messages, p.Digest)
	}
	if o.dry {
		fmt.Fprintf(w, "the stream is whole: %s of %s, %s; nothing is published\n",
			api.Count(o.end.Messages, "message"), o.info.Topic, api.Count(len(o.channels), "channel"))
		return
	}
	for _, n := range o.report.Notes {
		fmt.Fprintln(w, "note:", n)
	}
	fmt.Fprintf(w, "%s published to %s, %d were there; %s; %s\n", api.Count(o.report.Imported, "message"), o.topic, o.report.There,
		api.Count(o.report.Deferred, "deferred message"), api.Count(len(o.report.Channels), "channel"))
}
