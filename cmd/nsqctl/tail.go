package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	nsq "github.com/nsqio/go-nsq"
	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/nsqclient"
)

const (
	// reconnectDelay is the pause before a broker is dialled again, and between queries of a
	// lookup API: go-nsq has one setting for both.
	reconnectDelay = time.Second
	// heartbeat is the time within which a broker that is alive answers.
	heartbeat = time.Second
	// checkEvery is the pause between two checks whether a broker is connected.
	checkEvery = 250 * time.Millisecond
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
		Long: `tail consumes a channel and prints each body on its own line. Without --channel
it creates an ephemeral one, which receives the messages from now on; with
--channel it shares the messages with the other consumers of that channel. It
creates no topic and no other channel (nsqctl channel create); it asks the HTTP
API, and continues without an answer. With -o json a line has the id, the attempts
and the time as well. A message is finished when it is printed.`,
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
			consumer.SetLogger(log.New(cmd.ErrOrStderr(), "", 0), nsq.LogLevelError)
			p := &printer{out: bufio.NewWriter(cmd.OutOrStdout()), limit: count, most: cfg.MaxInFlight, want: consumer.ChangeMaxInFlight, done: make(chan struct{}), json: t.Output == "json"}
			consumer.AddHandler(p)
			consumer.SetLookupdHttpClient(t.HTTP)
			consumer.SetBehaviorDelegate(t.Security.TLSFilter(cmd.ErrOrStderr()))
			if lookupd != "" {
				err = consumer.ConnectToNSQLookupd(lookupd)
			} else {
				err = connectAny(cmd.Context(), consumer, t)
			}
			if err != nil {
				return err
			}
			for ended := false; !ended; {
				if lookupd == "" && consumer.Stats().Connections == 0 {
					_ = connectAny(cmd.Context(), consumer, t) // until one answers
				}
				select {
				case <-cmd.Context().Done():
					ended = true
				case <-p.done:
					ended = true
				case <-time.After(checkEvery):
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
	done  chan struct{}
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
			close(p.done)
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
		close(p.done)
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
	// lookups is how often a topic or a channel is looked up: it may just have been created at another broker.
	lookups = 3
	// lookupTimeout bounds one question. Without an answer tail continues.
	lookupTimeout = 2 * time.Second
)

// tailable refuses a topic or a channel that does not exist: a subscription would create it. Without an answer of the
// lookup API it refuses nothing.
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

// lookupAddresses are the HTTP addresses of the brokers of tail. If only the TCP address of a broker is given, its HTTP port
// is the next one, as by default.
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
