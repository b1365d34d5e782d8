package main

import (
	"bufio"
	"fmt"
	"log"
	"math/rand/v2"
	"sync"
	"time"

	nsq "github.com/nsqio/go-nsq"
	"github.com/spf13/cobra"
)

// comeBack is how long after its connection ended a broker is dialled again, and how
// often a lookup API is asked: go-nsq has one number for both.
const comeBack = time.Second

func newTail(t *target) *cobra.Command {
	var topic, channel, lookupd string
	var count, inFlight int
	cmd := &cobra.Command{
		Use:     "tail --topic TOPIC",
		Aliases: []string{"sub"},
		Short:   "print the messages of a topic, a line each",
		Long: `tail consumes a channel and prints each body on its own line. Without --channel
it makes an ephemeral one that sees what comes from now on; with --channel it
takes messages away from the other consumers of that channel.`,
		Example: `  nsqctl tail --topic records -n 10
  nsqctl sub --topic records --channel archive > archive.jsonl`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if channel == "" {
				channel = fmt.Sprintf("tail%06d#ephemeral", rand.IntN(1e6))
			}
			cfg := t.security.nsq()
			cfg.MaxInFlight = inFlight
			cfg.MaxAttempts = 0
			cfg.LookupdPollInterval, cfg.LookupdPollJitter = comeBack, 0
			consumer, err := nsq.NewConsumer(topic, channel, cfg)
			if err != nil {
				return err
			}
			consumer.SetLogger(log.New(cmd.ErrOrStderr(), "", 0), nsq.LogLevelError)
			p := &printer{out: bufio.NewWriter(cmd.OutOrStdout()), limit: count, done: make(chan struct{})}
			consumer.AddHandler(p)
			consumer.SetLookupdHttpClient(t.client)
			if lookupd != "" {
				err = consumer.ConnectToNSQLookupd(lookupd)
			} else {
				err = consumer.ConnectToNSQDs(t.tcp)
			}
			if err != nil {
				return err
			}
			select {
			case <-cmd.Context().Done():
			case <-p.done:
			}
			consumer.Stop()
			<-consumer.StopChan
			return p.flush()
		},
	}
	f := cmd.Flags()
	f.StringVar(&topic, "topic", "", "topic to read (required)")
	f.StringVar(&channel, "channel", "", "channel to consume; default an ephemeral one")
	f.StringVar(&lookupd, "lookupd-http-address", "", "find the brokers by this lookup API, host:port or https://host:port, instead of --nsqd-tcp-address")
	f.IntVarP(&count, "count", "n", 0, "stop after so many messages; 0 = never")
	f.IntVar(&inFlight, "max-in-flight", 200, "messages taken ahead")
	_ = cmd.MarkFlagRequired("topic")
	return cmd
}

// printer writes bodies and stops at the limit; what comes later goes back.
type printer struct {
	mu    sync.Mutex
	out   *bufio.Writer
	n     int
	limit int
	done  chan struct{}
}

// HandleMessage prints one message; an error gives it back to the channel.
func (p *printer) HandleMessage(m *nsq.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.limit > 0 && p.n >= p.limit {
		m.DisableAutoResponse()
		m.RequeueWithoutBackoff(0)
		return nil
	}
	_, _ = p.out.Write(m.Body)
	if err := p.out.WriteByte('\n'); err != nil { // the writer keeps its first error
		return err
	}
	p.n++
	if p.n == p.limit {
		close(p.done)
	}
	return p.out.Flush()
}

func (p *printer) flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Flush()
}
