package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	nsq "github.com/nsqio/go-nsq"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/publisher"
)

type pubOptions struct {
	publisher.Options
	quiet bool
}

// pubLinger is how long a line waits for others of its batch.
const pubLinger = 100 * time.Millisecond

func newPub(t *cli.Target) *cobra.Command {
	var o pubOptions
	cmd := &cobra.Command{
		Use:   "pub --topic TOPIC [FILE]",
		Short: "publish a file or standard input, one message per line",
		Long: `pub publishes every non-empty line as one message and ends when all are
answered OK: exit code 0. After Ctrl-C, or after a put whose retries are used up,
it prints the number of published messages and ends with 1.

A put that a broker refuses for now ("not stored"), and a put whose outcome is
unknown ("in doubt", or no answer within --timeout), is retried for the time of
--retry; stderr has the reasons. A put in doubt may then be stored twice, unless
the topic recognises content (nsqctl topic create --dedupe content); pub counts
and reports these. A put that every broker would refuse, such as a message
that is too large, is not retried. If a broker does not answer, or is not ready,
pub uses the next address.

With --tls pub publishes nothing to a port without TLS.`,
		Example: `  nsqctl pub --topic records records.jsonl
  seq 1000 | nsqctl pub --topic numbers --batch 100`,
		RunE: func(cmd *cobra.Command, args []string) error {
			in, size, err := openInput(cmd, args)
			if err != nil {
				return err
			}
			defer in.Close()
			return publish(cmd, t, o, in, size)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Topic, "topic", "", "topic to publish to (required)")
	f.IntVar(&o.Batch, "batch", 1, "lines in one multi-put; 1 = single puts")
	f.IntVar(&o.Window, "window", 500, "largest number of unanswered puts")
	f.DurationVar(&o.Retry, "retry", 30*time.Second, "how long a failing put or connection is retried")
	f.DurationVar(&o.Timeout, "timeout", 15*time.Second, "longest wait for an answer before the connection is closed")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print no progress")
	return cli.Required(cmd, "topic")
}

func openInput(cmd *cobra.Command, args []string) (io.ReadCloser, int64, error) {
	if len(args) == 0 || args[0] == "-" {
		return io.NopCloser(cmd.InOrStdin()), -1, nil
	}
	f, err := os.Open(args[0])
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	return f, info.Size(), nil
}

func publish(cmd *cobra.Command, t *cli.Target, o pubOptions, in io.Reader, size int64) error {
	if o.Batch < 1 || o.Window < 1 || o.Timeout <= 0 {
		return errors.New("--batch and --window must be at least 1, --timeout more than 0")
	}
	if !nsq.IsValidTopicName(o.Topic) {
		return fmt.Errorf("%q is not a valid topic name", o.Topic)
	}
	bar := progressbar.NewOptions64(size, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionShowBytes(true),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetVisibility(!o.quiet && cli.IsTerminal(os.Stderr)),
		progressbar.OptionClearOnFinish())
	o.Addresses, o.Dialer, o.Linger = t.TCP, t.Security.Dialer(), pubLinger
	o.Progress = func(bytes int) { _ = bar.Add(bytes) }
	problems := cli.NewReporter(cmd.ErrOrStderr())
	o.Report = func(line string) {
		_ = bar.Clear()
		problems.Report(line)
	}
	start := time.Now()
	totals, err := publisher.Run(cmd.Context(), in, o.Options)
	_ = bar.Clear()
	if err != nil {
		return fmt.Errorf("%w (answered OK: %s)", err, cli.Count(totals.Messages, "message"))
	}
	_ = bar.Finish()
	return reportTotals(cmd, t, totals, time.Since(start))
}

func reportTotals(cmd *cobra.Command, t *cli.Target, n publisher.Totals, took time.Duration) error {
	rate := float64(n.Messages) / took.Seconds()
	return cli.Print(cmd, t, map[string]any{
		"messages": n.Messages, "seconds": took.Seconds(), "messages_per_second": rate,
		"puts_tried_again": n.Retried + n.InDoubt, "puts_in_doubt": n.InDoubt,
	}, func(w io.Writer) {
		fmt.Fprintf(w, "%s answered OK in %s (%.0f/s), %s retried", cli.Count(n.Messages, "message"), took.Round(time.Millisecond), rate, cli.Count(n.Retried+n.InDoubt, "put"))
		if n.InDoubt > 0 {
			fmt.Fprintf(w, ", %d of them in doubt: they may be stored twice", n.InDoubt)
		}
		fmt.Fprintln(w)
	})
}
