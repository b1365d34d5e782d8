package transfer

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/ident"
)

const exportPage = 1000 // the number of messages that one request asks for

func newExport(t *cli.Target) *cobra.Command {
	o := exporting{t: t}
	cmd := &cobra.Command{
		Use:   "export TOPIC",
		Short: "write a topic as a checksummed stream, for import",
		Long: `export writes the retained messages of a topic, consumed or not, with their sequences, times, headers and
deadlines, and its durable channels with their positions, to a file or to stdout. It does not affect the topic. nsqctl
import reads the stream; docs/reference/export-format.md describes it.

The stream ends with the last message that is committed when export begins. A channel's position is taken at the
beginning, or earlier: messages finished during the export are delivered again after an import. Messages that retention
removes during the export are counted as missing, and export ends with 1.

With --file the file appears when it is whole and synced. Every record has a checksum that covers the record before it,
so import notices a stream that is torn or altered.`,
		Example: `  nsqctl export orders --file orders.lsx
  nsqctl export orders | gzip >orders.lsx.gz
  nsqctl export orders --nsqd-http-address old:4151 | nsqctl import - --nsqd-http-address new:4151`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.topic = args[0]
			var err error
			if o.from, err = cli.Place(o.from); err != nil {
				return err
			}
			return o.run(cmd)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.file, "file", "", "file to write; empty: stdout")
	f.StringVar(&o.from, "from", "earliest", "first message of each partition: "+cli.Places)
	f.DurationVar(&o.patience, "retry", time.Minute, "how long a request that fails is repeated")
	return cmd
}

type exporting struct {
	t                 *cli.Target
	topic, file, from string
	id                ident.TopicID
	patience          time.Duration
	missing           uint64
}

func (o *exporting) run(cmd *cobra.Command) error {
	out, commit, err := o.output(cmd)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(out, 1<<20)
	end, err := o.write(cmd.Context(), msgstream.NewWriter(buffered))
	if err == nil {
		err = buffered.Flush()
	}
	if err = commit(err); err != nil {
		return err
	}
	if o.t.Output == "json" {
		answer := map[string]any{"messages": end.Messages, "body_bytes": end.BodyBytes, "partitions": end.Partitions, "missing": o.missing}
		if err := cli.PrintJSON(cmd.ErrOrStderr(), answer); err != nil {
			return err
		}
	} else {
		for _, p := range end.Partitions {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s/%d: %s, digest %s\n", o.topic, p.Partition, api.Count(p.Messages, "message"), p.Digest)
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s, %s of bodies\n", api.Count(end.Messages, "message"), api.Count(end.BodyBytes, "byte"))
	}
	if o.missing > 0 {
		return fmt.Errorf("retention removed %s before reading: the stream is complete without them", api.Count(o.missing, "message"))
	}
	return nil
}

// output opens the output. commit makes the file appear, or removes it after an error.
func (o *exporting) output(cmd *cobra.Command) (out io.Writer, commit func(error) error, err error) {
	if o.file == "" {
		if cli.IsTerminal(cmd.OutOrStdout()) {
			return nil, nil, errors.New("the stream is binary: give --file, or redirect the output")
		}
		return cmd.OutOrStdout(), func(err error) error { return err }, nil
	}
	name := o.file // a symbolic link stays: the file that it names is replaced
	switch at, err := os.Stat(o.file); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, nil, err
	case !at.Mode().IsRegular(): // a device or a pipe would be replaced by a file
		return nil, nil, cli.Usage("--file: %s is not a regular file; without --file the stream goes to stdout", o.file)
	default:
		if name, err = filepath.EvalSymlinks(o.file); err != nil {
			return nil, nil, err
		}
	}
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return nil, nil, err
	}
	return f, func(err error) error { return cli.Commit(f, name, err) }, nil
}

func (o *exporting) write(ctx context.Context, w *msgstream.Writer) (end msgstream.End, err error) {
	v, topic, there, err := o.t.Topic(ctx, o.topic)
	if err != nil {
		return end, err
	}
	if !there {
		return end, cli.NotFound("topic", o.topic)
	}
	o.id = topic.ID // another topic of the name is not mixed in
	// The positions before the ends: a channel is never ahead of the stream.
	channels, err := readChannels(ctx, &o.t.Client, o.topic)
	if err != nil {
		return end, err
	}
	info, err := o.info(ctx, v, topic)
	if err != nil {
		return end, err
	}
	if err := w.Info(info); err != nil {
		return end, err
	}
	for _, ch := range channels {
		if err := w.Channel(ch); err != nil {
			return end, err
		}
	}
	for n, p := range info.Partitions {
		if err := o.partition(ctx, w, n, p, channels); err != nil {
			return end, fmt.Errorf("%s/%d: %w", o.topic, n, err)
		}
	}
	return w.End()
}

func (o *exporting) log(n int) partitionLog {
	return partitionLog{&o.t.Client, o.topic, o.id, n}
}

// info reads the first and the last message of each partition.
func (o *exporting) info(ctx context.Context, v api.ClusterView, topic api.TopicView) (msgstream.Info, error) {
	info := msgstream.Info{Cluster: v.Cluster, Topic: o.topic, TopicID: topic.ID, TimeNS: time.Now().UnixNano(), Build: api.ReadBuild().Version, Ordered: topic.Ordered}
	ends := map[int]uint64{}
	for n := range topic.Partitions {
		page, err := o.log(n).pageWithin(ctx, o.from, 0, o.patience)
		if err != nil {
			return info, fmt.Errorf("%s/%d: %w", o.topic, n, err)
		}
		ends[n] = page.End
		info.Partitions = append(info.Partitions, msgstream.PartitionInfo{First: min(page.Next, page.End), End: page.End})
	}
	return info, cli.Beyond(o.from, ends)
}

func (o *exporting) partition(ctx context.Context, w *msgstream.Writer, n int, p msgstream.PartitionInfo, channels []msgstream.Channel) error {
	if err := o.deferredBefore(ctx, w, n, p.First, channels); err != nil {
		return err
	}
	for at := p.First; at < p.End; {
		page, err := o.log(n).pageWithin(ctx, strconv.FormatUint(at, 10), exportPage, o.patience)
		if err != nil {
			return err
		}
		if page.Next <= at && len(page.Messages) == 0 {
			return fmt.Errorf("the leader does not return message %d", at)
		}
		for i := range page.Messages {
			m := &page.Messages[i]
			if m.Sequence < at || m.Sequence >= p.End {
				continue // relocated, or newer than the stream
			}
			o.missing += m.Sequence - at
			if err := w.Message(m); err != nil {
				return err
			}
			at = m.Sequence + 1
		}
		if next := min(page.Next, p.End); next > at {
			o.missing += next - at
			at = next
		}
	}
	return nil
}

// deferredBefore writes the deferred messages whose sequences are below the first of the stream.
func (o *exporting) deferredBefore(ctx context.Context, w *msgstream.Writer, n int, first uint64, channels []msgstream.Channel) error {
	var early []uint64
	for _, ch := range channels {
		for _, p := range ch.Positions {
			for _, d := range p.Deferred {
				if p.Partition == n && uint64(d.Sequence) < first {
					early = append(early, uint64(d.Sequence))
				}
			}
		}
	}
	slices.SortFunc(early, cmp.Compare)
	for _, seq := range slices.Compact(early) {
		page, err := o.log(n).pageWithin(ctx, strconv.FormatUint(seq, 10), 1, o.patience)
		if err != nil {
			return err
		}
		if len(page.Messages) == 0 || page.Messages[0].Sequence != seq {
			continue // finished and removed since
		}
		m := page.Messages[0]
		m.DeferredOnly = true
		if err := w.Message(&m); err != nil {
			return err
		}
	}
	return nil
}
