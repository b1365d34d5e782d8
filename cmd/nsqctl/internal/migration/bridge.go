package migration

import (
	"context"
	"errors"
	"log"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	nsq "github.com/nsqio/go-nsq"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/publisher"
)

const bridgeAgent = "nsqctl-migrate" // begins the user agent of every bridge at a stock nsqd

const lastAnswers = 5 * time.Second // how long stop waits for the answers of unanswered puts

type bridgeOptions struct {
	Topic, Channel string
	Header         []byte            // of the published messages
	Consumer       *nsq.Config       // TLS and AUTH of the stock side, MaxInFlight; startBridge sets the rest
	Publisher      publisher.Options // Report receives the problems of the connections to the nsqds, too
}

// lines forwards the log of go-nsq. Answers to a message that has timed out are not a problem.
type lines func(string)

// Write implements io.Writer.
func (f lines) Write(b []byte) (int, error) {
	if text := strings.TrimSpace(string(b)); !strings.Contains(text, "E_FIN_FAILED") && !strings.Contains(text, "E_REQ_FAILED") {
		f(text)
	}
	return len(b), nil
}

// bridge moves the messages of one channel. Its methods may be called by any goroutine.
type bridge struct {
	o        bridgeOptions
	consumer *nsq.Consumer
	out      chan publisher.Message
	stopping chan struct{}
	cancel   context.CancelFunc
	ended    chan struct{} // the publisher has ended, err is valid
	err      error

	mu       sync.Mutex
	pending  map[id][]*nsq.Message // all deliveries of each message whose put has no answer
	moved    int64                 // messages finished after their OK
	repeated int64                 // deliveries that were not published: the put of their message had no answer yet
}

// id names a message: nsqds may give the same id to different messages.
type id struct {
	nsqd string
	id   nsq.MessageID
}

// startBridge starts a bridge without a connection to an nsqd. It ends by itself only after a refusal
// that every broker of Lockstep would repeat (ended).
func startBridge(o bridgeOptions) (*bridge, error) {
	cfg := o.Consumer
	cfg.UserAgent = bridgeAgent
	cfg.MaxAttempts = 0                   // a message is never given up
	cfg.MaxBackoffDuration = 0            // nor is its channel slowed down
	cfg.LookupdPollInterval = time.Second // the pause before a broken connection is dialled again
	consumer, err := nsq.NewConsumer(o.Topic, o.Channel, cfg)
	if err != nil {
		return nil, err
	}
	consumer.SetLogger(log.New(lines(o.Publisher.Report), "", 0), nsq.LogLevelError)
	ctx, cancel := context.WithCancel(context.Background())
	b := &bridge{
		o: o, consumer: consumer, out: make(chan publisher.Message), stopping: make(chan struct{}),
		cancel: cancel, ended: make(chan struct{}), pending: map[id][]*nsq.Message{},
	}
	consumer.AddHandler(b)
	go func() {
		_, b.err = publisher.Send(ctx, b.out, o.Publisher)
		close(b.ended)
	}()
	return b, nil
}

// connect also consumes from an nsqd, unless it does already.
func (b *bridge) connect(tcp string) error {
	if err := b.consumer.ConnectToNSQD(tcp); err != nil && !errors.Is(err, nsq.ErrAlreadyConnected) {
		return err
	}
	return nil
}

func (b *bridge) counts() (moved, repeated int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.moved, b.repeated
}

// HandleMessage implements nsq.Handler: it passes a message to the publisher.
func (b *bridge) HandleMessage(m *nsq.Message) error {
	m.DisableAutoResponse()
	key := id{m.NSQDAddress, m.ID}
	b.mu.Lock()
	unanswered := len(b.pending[key]) > 0
	b.pending[key] = append(b.pending[key], m)
	if unanswered {
		b.repeated++
	}
	b.mu.Unlock()
	if unanswered {
		return nil
	}
	select {
	case b.out <- publisher.Message{Topic: b.o.Topic, Header: b.o.Header, Body: m.Body, Stored: func() { b.stored(key) }}:
		return nil
	case <-b.stopping:
	case <-b.ended:
	}
	b.answer(key, requeue)
	return nil
}

// stored finishes a message whose put was answered OK.
func (b *bridge) stored(key id) {
	b.mu.Lock()
	b.moved++
	b.mu.Unlock()
	b.answer(key, (*nsq.Message).Finish)
}

func requeue(m *nsq.Message) { m.RequeueWithoutBackoff(0) }

// answer answers all deliveries of a message. The consumer waits for an answer to each delivery, the nsqd only to the last.
func (b *bridge) answer(key id, with func(*nsq.Message)) {
	b.mu.Lock()
	deliveries := b.pending[key]
	delete(b.pending, key)
	b.mu.Unlock()
	for _, m := range slices.Backward(deliveries) {
		with(m)
	}
}

// stop ends the bridge. Messages whose puts are not answered within 5 s go back to the stock
// nsqd: they may be in Lockstep twice after the next start. It returns their number.
func (b *bridge) stop() (unanswered int) {
	close(b.stopping)
	b.consumer.Stop()
	deadline := time.NewTimer(lastAnswers)
	defer deadline.Stop()
	select {
	case <-b.consumer.StopChan: // each connection has waited for its messages in flight
	case <-b.ended:
	case <-deadline.C:
	}
	b.cancel()
	<-b.ended
	b.mu.Lock()
	left := slices.Collect(maps.Keys(b.pending))
	b.mu.Unlock()
	for _, key := range left {
		b.answer(key, requeue)
	}
	<-b.consumer.StopChan
	return len(left)
}
