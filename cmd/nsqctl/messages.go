package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	nsq "github.com/nsqio/go-nsq"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/publisher"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/nsqclient"
)

func newPeek(t *cli.Target) *cobra.Command {
	var p peeking
	cmd := &cobra.Command{
		Use:   "peek TOPIC",
		Short: "print messages without consuming them",
		Long: `peek reads the log of a topic: all retained messages, consumed or not. It does not affect channels.
--node reads the replica on one broker. With --uncommitted that includes messages beyond its committed end, as after an
unclean recovery: no consumer receives them, and they may be removed later.`,
		Example: `  nsqctl peek orders -n 3
  nsqctl peek orders --partition 2 --from 1500 -o json
  nsqctl peek orders --partition 2 --node n1 --uncommitted -n 1000000 -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case cmd.Flags().Changed("partition") && p.partition < 0:
				return fmt.Errorf("--partition %d: partitions are numbered from 0", p.partition)
			case p.uncommitted && p.node == "":
				return errors.New("--uncommitted requires --node: each replica has its own end")
			}
			p.topic = args[0]
			var err error
			if p.from, err = cli.Place(p.from); err != nil {
				return err
			}
			return p.run(cmd, t)
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.from, "from", "earliest", "first message of each partition: "+cli.Places)
	f.IntVar(&p.partition, "partition", -1, "only this partition")
	f.IntVarP(&p.count, "count", "n", 10, "messages of each partition")
	f.StringVar(&p.node, "node", "", "read the replica on this broker")
	f.BoolVar(&p.uncommitted, "uncommitted", false, "with --node: include messages beyond its committed end")
	return cmd
}

type peeking struct {
	topic, from, node string
	partition, count  int // partition -1: all
	uncommitted       bool
}

func (p peeking) run(cmd *cobra.Command, t *cli.Target) error {
	_, x, _, err := t.Topic(cmd.Context(), p.topic)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	found := false
	ends := map[int]uint64{}
	for _, part := range x.Partitions {
		if p.partition >= 0 && part.Partition != p.partition {
			continue
		}
		found = true
		if p.node == "" && part.Leader == "" {
			return fmt.Errorf("%s/%d has no leader now; --node reads the replica on one broker", p.topic, part.Partition)
		}
		one := p
		one.partition = part.Partition
		one.node = cmp.Or(p.node, string(part.Leader)) // a follower may lag behind the leader
		if err := one.print(cmd, t, out, ends); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("%w, or no such partition of it", cli.NotFound("topic", p.topic))
	}
	if err := cli.Beyond(p.from, ends); err != nil {
		return err
	}
	return out.Flush()
}

// print reads one partition. Any broker can answer: it forwards the request to one with a replica.
func (p peeking) print(cmd *cobra.Command, t *cli.Target, out *bufio.Writer, ends map[int]uint64) error {
	for p.count > 0 {
		q := url.Values{
			"topic": {p.topic}, "partition": {fmt.Sprint(p.partition)}, "from": {p.from}, "limit": {fmt.Sprint(p.count)},
			"node": {p.node}, "uncommitted": {fmt.Sprint(p.uncommitted)},
		}
		var page api.Peeked
		if err := t.GetAny(cmd.Context(), "/v1/topic/peek", q, &page); err != nil {
			return err
		}
		ends[p.partition] = uint64(page.End)
		for i := range page.Messages {
			if err := printPeeked(out, t, &page.Messages[i]); err != nil {
				return err
			}
		}
		p.count -= len(page.Messages)
		if len(page.Messages) == 0 || page.Next >= page.End {
			return nil
		}
		p.from = fmt.Sprint(page.Next)
	}
	return nil
}

func printPeeked(out *bufio.Writer, t *cli.Target, m *api.PeekedMessage) error {
	if t.Output == "json" {
		m.Trace, m.HeaderBytes = 0, nil // for copies
		return json.NewEncoder(out).Encode(m)
	}
	text := m.Body
	if m.Bytes != nil {
		text = fmt.Sprintf("%q", m.Bytes)
	}
	delay := cli.Mark(m.DeliverAt != 0, "  due "+instant(m.DeliverAt))
	_, err := fmt.Fprintf(out, "%d/%d  %s  %s%s  %s\n", m.Partition, m.Sequence, m.ID, instant(m.Time), delay, text)
	return err
}

func newTrace(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trace ID --topic TOPIC",
		Short: "show where a message is",
		Long: `trace shows the state of one message, as the leader of its partition has it now: in the log, and in every
channel. Nothing is recorded for it, so it has no history: it is unknown which consumer finished a message. nsqctl tail,
peek and the client print the id.`,
		Example: `  nsqctl trace 5a10000000000000 --topic orders`,
		RunE:    cli.Show(t, "/v1/trace", printTrace, "topic"),
	}
	cmd.Flags().String("topic", "", "the topic of the message")
	return cli.Required(cmd, "topic")
}

func printTrace(w io.Writer, m api.MessageTrace) {
	fmt.Fprintf(w, "message %s of %s/%d, sequence %d: %s\n", m.ID, m.Topic, m.Partition, m.Sequence, m.State)
	if m.Time != 0 {
		fmt.Fprintf(w, "stored %s, %s\n", instant(m.Time), api.Count(m.Bytes, "byte"))
	}
	if m.DeliverAt != 0 {
		fmt.Fprintf(w, "due %s\n", instant(m.DeliverAt))
	}
	if len(m.Header) > 0 {
		fmt.Fprintf(w, "header %s\n", api.Printable(string(m.Header)))
	}
	fmt.Fprintf(w, "leader %s, epoch %d, in sync %s of %s\n", m.Leader, m.Epoch, cli.Names(m.ISR), cli.Names(m.Replicas))
	if len(m.Channels) > 0 {
		fmt.Fprintln(w, "CHANNEL\tSTATE\tATTEMPTS\tUNTIL\tCLIENTS")
	}
	for _, c := range m.Channels {
		until := cmp.Or(cli.Mark(c.Deadline != 0, instant(c.Deadline)), "-")
		clients := cmp.Or(strings.Join(c.Clients, ","), "-")
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", c.Channel, c.State, c.Attempts, until, clients)
	}
}

func instant(unixNS int64) string { return time.Unix(0, unixNS).Format(time.RFC3339Nano) }

type pubOptions struct {
	publisher.Options
	quiet bool
}

const pubLinger = 100 * time.Millisecond // how long a line waits for others of its batch

func newPub(t *cli.Target) *cobra.Command {
	var o pubOptions
	cmd := &cobra.Command{
		Use:   "pub --topic TOPIC [FILE]",
		Short: "publish a file or standard input, one message per line",
		Long: `pub publishes every non-empty line as one message and ends when all are answered OK: exit code 0. After
Ctrl-C, or after a put whose retries are used up, it prints the number of published messages and ends with 1.

A put that a broker refuses for now ("not stored"), and a put whose outcome is unknown ("in doubt", or no answer within
--timeout), is retried for the time of --retry; stderr has the reasons. A put in doubt may then be stored twice, unless
the topic recognises content (nsqctl topic create --dedupe content); pub counts and reports these. A put that every
broker would refuse, such as a message that is too large, is not retried. If a broker does not answer, or is not ready,
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
		return fmt.Errorf("%w (answered OK: %s)", err, api.Count(totals.Messages, "message"))
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
		fmt.Fprintf(w, "%s answered OK in %s (%.0f/s), %s retried", api.Count(n.Messages, "message"), took.Round(time.Millisecond), rate, api.Count(n.Retried+n.InDoubt, "put"))
		if n.InDoubt > 0 {
			fmt.Fprintf(w, ", %d of them in doubt: they may be stored twice", n.InDoubt)
		}
		fmt.Fprintln(w)
	})
}

const (
	// reconnectDelay is the pause between dials of a broker, and between lookups: go-nsq has one setting for both.
	reconnectDelay = time.Second
	heartbeat      = time.Second            // the time within which a broker that is alive answers
	checkEvery     = 250 * time.Millisecond // the pause between two checks whether a broker is connected
)

// silence is the time without an answer after which a broker counts as lost. Tests raise it.
var silence = 5 * time.Second

func newTail(t *cli.Target) *cobra.Command {
	var topic, channel, lookupd string
	var count, inFlight int
	cmd := &cobra.Command{
		Use:     "tail --topic TOPIC",
		Aliases: []string{"sub"},
		Short:   "print the messages of a topic, one per line",
		Long: `tail consumes a channel and prints each body on its own line. Without --channel it creates an ephemeral
one, which receives the messages from now on; with --channel it shares the messages with the other consumers of that
channel. It creates no topic and no other channel (nsqctl channel create); it asks the HTTP API, and continues without
an answer. With -o json a line has the id, the attempts and the time as well. A message is finished when it is printed.`,
		Example: `  nsqctl tail --topic records -n 10
  nsqctl sub --topic records --channel archive > archive.jsonl`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := tailable(cmd, t, lookupd, topic, channel); err != nil {
				return err
			}
			if channel == "" {
				channel = fmt.Sprintf("tail%06d#ephemeral", rand.IntN(1e6))
			}
			cfg := t.Security.NSQ()
			if cfg.MaxInFlight = inFlight; count > 0 {
				cfg.MaxInFlight = min(inFlight, count) // a broker counts an attempt for each message that it sends
			}
			cfg.MaxAttempts = 0
			cfg.HeartbeatInterval, cfg.ReadTimeout = heartbeat, silence
			cfg.LookupdPollInterval, cfg.LookupdPollJitter = reconnectDelay, 0
			consumer, err := nsq.NewConsumer(topic, channel, cfg)
			if err != nil {
				return err
			}
			ctx, stop := context.WithCancel(cmd.Context())
			defer stop()
			consumer.SetLogger(log.New(cmd.ErrOrStderr(), "", 0), nsq.LogLevelError)
			p := &printer{out: bufio.NewWriter(cmd.OutOrStdout()), limit: count, most: cfg.MaxInFlight, want: consumer.ChangeMaxInFlight, stop: stop, json: t.Output == "json"}
			consumer.AddHandler(p)
			consumer.SetLookupdHttpClient(t.HTTP)
			consumer.SetBehaviorDelegate(tlsFilter{&t.Security, cmd.ErrOrStderr()})
			if lookupd != "" {
				err = consumer.ConnectToNSQLookupd(lookupd)
			} else {
				err = connectAny(ctx, consumer, t)
			}
			if err != nil {
				return err
			}
			for concurrency.Sleep(ctx, checkEvery) {
				if lookupd == "" && consumer.Stats().Connections == 0 {
					_ = connectAny(ctx, consumer, t) // until one answers
				}
			}
			consumer.Stop()
			<-consumer.StopChan
			return p.err
		},
	}
	f := cmd.Flags()
	f.StringVar(&topic, "topic", "", "topic to read (required)")
	f.StringVar(&channel, "channel", "", "channel to consume; default an ephemeral one")
	f.StringVar(&lookupd, "lookupd-http-address", "", "lookup API that lists the brokers, host:port or https://host:port; replaces --nsqd-tcp-address")
	f.IntVarP(&count, "count", "n", 0, "stop after this number of messages; 0 = never")
	f.IntVar(&inFlight, "max-in-flight", 200, "largest number of messages in flight")
	return cli.Required(cmd, "topic")
}

// tlsFilter is an nsq.DiscoveryFilter that leaves out the ports without TLS if TLS is required, and reports them to out.
type tlsFilter struct {
	*cli.Security
	out io.Writer
}

func (f tlsFilter) Filter(addresses []string) []string {
	return slices.DeleteFunc(addresses, func(address string) bool {
		err := f.CheckTLS(context.Background(), address) // go-nsq passes no context
		if errors.Is(err, nsqclient.ErrNoTLS) {
			fmt.Fprintf(f.out, "%s: %v\n", address, err)
		}
		return errors.Is(err, nsqclient.ErrNoTLS)
	})
}

// connectAny consumes from the first broker that answers. One is enough to receive all messages, and over one connection
// the messages of a partition arrive in order.
func connectAny(ctx context.Context, c *nsq.Consumer, t *cli.Target) error {
	var silent []error
	for _, address := range t.TCP {
		err := t.Security.CheckTLS(ctx, address)
		if err == nil {
			err = c.ConnectToNSQD(address)
		}
		if err == nil || errors.Is(err, nsq.ErrAlreadyConnected) {
			return nil
		}
		if errors.Is(err, nsqclient.ErrNoTLS) {
			return fmt.Errorf("%s: %w", address, err)
		}
		silent = append(silent, fmt.Errorf("%s: %w", address, err))
	}
	return errors.Join(silent...)
}

// printer writes bodies and stops at the limit. Messages beyond it that have come already are requeued.
type printer struct {
	mu    sync.Mutex
	out   *bufio.Writer
	n     int
	limit int
	most  int       // in flight
	want  func(int) // grants the brokers credit for that many more messages
	stop  func()    // ends the command
	json  bool
	err   error // of the output: nothing more is printed; valid when the consumer has stopped
}

// tailed is a message as a line of JSON.
type tailed struct {
	ID        string `json:"id"`
	Attempts  uint16 `json:"attempts"`
	Timestamp int64  `json:"timestamp"` // Unix time in ns
	Broker    string `json:"broker"`
	Body      string `json:"body,omitempty"`
	Bytes     []byte `json:"body_base64,omitempty"` // a body that is not UTF-8
}

// HandleMessage prints one message. One that cannot be printed, and those beyond the limit, go back.
func (p *printer) HandleMessage(m *nsq.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	printed := false
	if p.err == nil && (p.limit == 0 || p.n < p.limit) {
		p.err = p.print(m)
		if printed = p.err == nil; !printed {
			p.want(0) // before the message goes back: it would come again
			p.stop()
		}
	}
	if !printed {
		m.DisableAutoResponse()
		m.RequeueWithoutBackoff(0)
		return nil
	}
	p.n++
	if left := p.limit - p.n; p.limit > 0 && left < p.most {
		p.want(left) // before the message is finished, which lets the next one come
	}
	if p.n == p.limit {
		p.stop()
	}
	return nil
}

func (p *printer) print(m *nsq.Message) error {
	line := m.Body
	if p.json {
		x := tailed{ID: string(m.ID[:]), Attempts: m.Attempts, Timestamp: m.Timestamp, Broker: m.NSQDAddress}
		if utf8.Valid(m.Body) {
			x.Body = string(m.Body)
		} else {
			x.Bytes = m.Body
		}
		var err error
		if line, err = json.Marshal(x); err != nil {
			return err
		}
	}
	_, _ = p.out.Write(line)
	_ = p.out.WriteByte('\n') // the writer returns its first error from Flush
	return p.out.Flush()
}

const (
	lookups = 3 // how often a topic or a channel is looked up: it may just have been created at another broker
	// lookupTimeout bounds one question. Without an answer tail continues.
	lookupTimeout = 2 * time.Second
)

// tailable refuses a topic or channel that the lookup API does not list: a subscription would create it.
func tailable(cmd *cobra.Command, t *cli.Target, lookupd, topic, channel string) error {
	ask := t.Client
	ask.Addresses = lookupAddresses(cmd, t, lookupd)
	if tls, is := strings.CutPrefix(lookupd, "https://"); is {
		ask.TLS, ask.Addresses = true, []string{tls}
	}
	for try := 1; ; try++ {
		missing := missingAt(cmd.Context(), &ask, topic, channel)
		if missing == nil || try == lookups || cmd.Context().Err() != nil {
			return missing
		}
		concurrency.Sleep(cmd.Context(), checkEvery)
	}
}

// lookupAddresses are the HTTP addresses of tail's brokers. With only a TCP address, the HTTP port is the next one.
func lookupAddresses(cmd *cobra.Command, t *cli.Target, lookupd string) []string {
	switch {
	case lookupd != "":
		return []string{strings.TrimPrefix(lookupd, "http://")}
	case cmd.Flags().Changed("nsqd-http-address") || !cmd.Flags().Changed("nsqd-tcp-address"):
		return t.Addresses
	}
	var all []string
	for _, address := range t.TCP {
		host, text, err := net.SplitHostPort(address)
		port, err2 := strconv.Atoi(text)
		if err != nil || err2 != nil {
			continue
		}
		if port++; t.TLS {
			port++
		}
		all = append(all, net.JoinHostPort(host, strconv.Itoa(port)))
	}
	return all
}

// missingAt asks the lookup API. nil: both exist, or that is unknown.
func missingAt(ctx context.Context, ask *brokerapi.Client, topic, channel string) error {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	if len(ask.Addresses) == 0 {
		return nil
	}
	answer, err := ask.CallAny(ctx, http.MethodGet, "/lookup", url.Values{"topic": {topic}})
	if brokerapi.Status(err) == http.StatusNotFound && strings.Contains(err.Error(), "TOPIC_NOT_FOUND") {
		return cli.ExitError{Code: cli.ExitNotFound, Err: fmt.Errorf("there is no topic %q, and tail creates none: nsqctl topic list, nsqctl topic create", topic)}
	}
	var found struct{ Channels, Producers *[]any }
	if err != nil || json.Unmarshal(answer, &found) != nil || found.Channels == nil || found.Producers == nil {
		return nil
	}
	if channel == "" || strings.HasSuffix(channel, api.EphemeralSuffix) || slices.Contains(*found.Channels, any(channel)) {
		return nil
	}
	return cli.ExitError{Code: cli.ExitNotFound, Err: fmt.Errorf("topic %s has no channel %q, and tail creates none: nsqctl channel list %s, nsqctl channel create %s %s", topic, channel, topic, topic, channel)}
}
