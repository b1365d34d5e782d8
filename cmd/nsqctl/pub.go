package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	nsq "github.com/nsqio/go-nsq"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
)

// maxLine bounds one line of input: the default largest message of NSQ.
const maxLine = 1 << 20

// retryEvery is the least time between two tries of a put.
const retryEvery = 50 * time.Millisecond

type pubOptions struct {
	topic  string
	batch  int
	window int
	retry  time.Duration
	quiet  bool
}

func newPub(t *target) *cobra.Command {
	var o pubOptions
	cmd := &cobra.Command{
		Use:   "pub --topic TOPIC [FILE]",
		Short: "publish a file or standard input, a message a line",
		Long: `pub publishes every non-empty line as one message and ends when all are
answered OK. A put that fails is tried again (on the next address, if several
are given and this one does not answer) until --retry is over, unless no broker
would take it, such as one that is too big; a put whose fate is in doubt may then be
stored twice, which is counted and reported.`,
		Example: `  nsqctl pub --topic records records.jsonl
  seq 1000 | nsqctl pub --topic numbers --batch 100`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, size, err := openInput(args)
			if err != nil {
				return err
			}
			defer in.Close()
			return publish(cmd, t, o, in, size)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.topic, "topic", "", "topic to publish to (required)")
	f.IntVar(&o.batch, "batch", 1, "lines in one multi-put; 1 = single puts")
	f.IntVar(&o.window, "window", 500, "puts under way at once")
	f.DurationVar(&o.retry, "retry", 30*time.Second, "how long a failing put is tried again")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no progress")
	_ = cmd.MarkFlagRequired("topic")
	return cmd
}

func openInput(args []string) (io.ReadCloser, int64, error) {
	if len(args) == 0 || args[0] == "-" {
		return io.NopCloser(os.Stdin), -1, nil
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

// put is one PUB or MPUB on its way.
type put struct {
	bodies   [][]byte
	bytes    int
	since    time.Time
	tried    time.Time // last
	tries    int
	producer *nsq.Producer // that it went to last
}

// publisher keeps a window of puts under way over one producer at a time.
type publisher struct {
	o         pubOptions
	config    *nsq.Config
	addresses []string
	at        int
	producer  *nsq.Producer
	answers   chan *nsq.ProducerTransaction
	underway  int
	acked     int64
	retried   int64
	bar       *progressbar.ProgressBar
}

func publish(cmd *cobra.Command, t *target, o pubOptions, in io.Reader, size int64) error {
	if o.batch < 1 || o.window < 1 {
		return errors.New("--batch and --window must be at least 1")
	}
	if !nsq.IsValidTopicName(o.topic) {
		return fmt.Errorf("%q is no name of a topic", o.topic)
	}
	p := &publisher{o: o, config: t.security.nsq(), addresses: t.tcp, answers: make(chan *nsq.ProducerTransaction, o.window)}
	if err := p.connect(); err != nil {
		return err
	}
	defer func() { p.producer.Stop() }()
	p.bar = progressbar.NewOptions64(size, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionShowBytes(true),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetVisibility(!o.quiet && isTerminal(os.Stderr)),
		progressbar.OptionClearOnFinish())
	start := time.Now()
	if err := p.run(cmd.Context(), in); err != nil {
		return fmt.Errorf("%w (%d messages were answered OK)", err, p.acked)
	}
	_ = p.bar.Finish()
	return p.report(cmd.OutOrStdout(), t.output, time.Since(start))
}

// report says what was published.
func (p *publisher) report(w io.Writer, output string, took time.Duration) error {
	rate := float64(p.acked) / took.Seconds()
	if output == "json" {
		return printJSON(w, map[string]any{
			"messages": p.acked, "seconds": took.Seconds(), "messages_per_second": rate, "puts_tried_again": p.retried,
		})
	}
	_, err := fmt.Fprintf(w, "%d messages answered OK in %s (%.0f/s), %d puts tried again\n",
		p.acked, took.Round(time.Millisecond), rate, p.retried)
	return err
}

func (p *publisher) run(ctx context.Context, in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxLine+2) // and its end
	next := &put{}
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue
		}
		next.bodies = append(next.bodies, append([]byte(nil), lines.Bytes()...))
		next.bytes += len(lines.Bytes()) + 1
		if len(next.bodies) < p.o.batch {
			continue
		}
		if err := p.send(ctx, next); err != nil {
			return err
		}
		next = &put{}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading the input: %w", err)
	}
	if len(next.bodies) > 0 {
		if err := p.send(ctx, next); err != nil {
			return err
		}
	}
	for p.underway > 0 {
		if err := p.answer(ctx); err != nil {
			return err
		}
	}
	return nil
}

// send puts one under way, after making room in the window.
func (p *publisher) send(ctx context.Context, x *put) error {
	for p.underway >= p.o.window {
		if err := p.answer(ctx); err != nil {
			return err
		}
	}
	x.since = time.Now()
	p.underway++
	return p.try(ctx, x)
}

func (p *publisher) try(ctx context.Context, x *put) error {
	for {
		x.tries++
		x.tried = time.Now()
		x.producer = p.producer
		var err error
		if len(x.bodies) == 1 {
			err = p.producer.PublishAsync(p.o.topic, x.bodies[0], p.answers, x)
		} else {
			err = p.producer.MultiPublishAsync(p.o.topic, x.bodies, p.answers, x)
		}
		if err == nil {
			return nil
		}
		if err := p.again(ctx, x, err); err != nil {
			return err
		}
	}
}

// answer takes one answer; what failed goes again.
func (p *publisher) answer(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case a := <-p.answers:
		x := a.Args[0].(*put)
		if a.Error == nil {
			p.underway--
			p.acked += int64(len(x.bodies))
			_ = p.bar.Add(x.bytes)
			return nil
		}
		if err := p.again(ctx, x, a.Error); err != nil {
			return err
		}
		return p.try(ctx, x)
	}
}

// again decides whether a put is tried once more, after a moment, and takes the
// next broker if this one does not answer.
func (p *publisher) again(ctx context.Context, x *put, cause error) error {
	var refused nsq.ErrProtocol
	answered := errors.As(cause, &refused)
	if answered && !refusedForNow(refused) || time.Since(x.since) > p.o.retry {
		return fmt.Errorf("a put failed %d times, last: %w", x.tries, cause)
	}
	p.retried++
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(x.tried.Add(retryEvery))): // what failed together goes together
	}
	if !answered && len(p.addresses) > 1 && x.producer == p.producer {
		p.at++
		old := p.producer
		go old.Stop() // fails what is outstanding into p.answers; ends by itself
		return p.connect()
	}
	return nil
}

// refusedForNow: E_PUB_FAILED, E_MPUB_FAILED. Everything else that a broker says
// to a put (too big, a bad name, no permission) it would say again.
func refusedForNow(refused nsq.ErrProtocol) bool {
	code, _, _ := strings.Cut(refused.Reason, " ")
	return strings.HasSuffix(code, "PUB_FAILED")
}

func (p *publisher) connect() error {
	producer, err := nsq.NewProducer(p.addresses[p.at%len(p.addresses)], p.config)
	if err != nil {
		return err
	}
	producer.SetLogger(log.New(io.Discard, "", 0), nsq.LogLevelError) // errors come back as results
	p.producer = producer
	return nil
}
