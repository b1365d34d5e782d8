// Package publisher publishes lines, or messages with headers, to a broker over the NSQ protocol. It has a window of
// unanswered puts on one connection, and continues at the next address when a broker fails. Package internal/nsqclient
// explains why go-nsq is not used.
//
// It chooses no partition, subscribes to nothing and uses no HTTP. It prints nothing: the caller receives the reports of
// problems, the progress and the totals.
//
// # Invariants
//
//  1. A message counts as published, and its Stored is called, only when the broker has answered OK. Answers come in the
//     order of the puts.
//  2. A put without an answer, or one that a broker refuses temporarily, is retried until Options.Retry has passed
//     since its first attempt. A put that every broker would refuse is not retried.
//  3. A put that is retried although it may be stored is counted in Totals.InDoubt.
//
// # Goroutines
//
// One goroutine calls Run or Send and owns the publisher and the writing side of the connection. One reads the input of Run
// ahead, and one for each connection reads the answers; both pass values over channels.
package publisher

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/nsqclient"
)

const (
	retryEvery    = 50 * time.Millisecond  // the least time between two attempts of a put
	connectEvery  = 250 * time.Millisecond // the pause between connection attempts
	maxBatchBytes = 4 << 20                // bounds a batch: the default limit of a broker is 5 MiB
	lastAnswers   = time.Second            // how long the publisher waits for answers after Ctrl-C
	// greetTimeout bounds IDENTIFY, TLS and AUTH together. It exceeds the time for which a starting broker delays
	// commands (--put-hold, 9 s), so the broker's reason arrives first.
	greetTimeout = 12 * time.Second
	linesAhead   = 1024 // how many lines are read while no put can be sent
	// chunksAhead bounds the long lines among them, in chunks of 64 KiB, and bytesUnderway the unanswered puts: one
	// line or one put may be longer.
	chunksAhead   = 256
	bytesUnderway = 64 << 20
	// maxLine bounds one line of input: the largest value of a broker's --max-msg-size.
	maxLine = 66_977_792
)

// Forever is the Options.Retry of a run that ends only with its context, its input, or a permanent refusal.
const Forever time.Duration = math.MaxInt64

// Options are the settings of a run.
type Options struct {
	Topic     string   // the topic for Run; Send uses the topics of the messages
	Addresses []string // of brokers, at least one: the next one is used when one fails
	Dialer    nsqclient.Dialer
	Batch     int           // messages of a put, at least 1
	Linger    time.Duration // how long a message waits for its batch to fill; 0: it takes only messages that are available
	Window    int           // largest number of unanswered puts, at least 1
	Retry     time.Duration // how long a failing put or connection is retried
	// Timeout is the longest wait for an answer. A broker answers within its --put-hold, 9 s.
	Timeout time.Duration
	// Report receives one line for each problem, however often it recurs, and Progress the bytes of each stored put; nil:
	// nothing. Run and Send call them from their own goroutine.
	Report   func(line string)
	Progress func(bytes int)
}

// Totals are the counts of a run.
type Totals struct {
	Messages int64 // answered OK
	Retried  int64 // puts that were refused and retried
	InDoubt  int64 // puts that were in doubt when they were retried: they may be stored twice
}

// Message is one message of Send.
type Message struct {
	Topic  string
	Header []byte // a JSON object: the message goes with PUB_EXT; nil: without a header
	Body   []byte
	// Stored is called by the goroutine of Send when the broker has answered OK, and must not block. nil: no call.
	Stored func()
	taken  func() // called when the message is part of a put; nil: nothing is called
}

// put is one unanswered PUB, MPUB, PUB_EXT or MPUB_EXT. Its messages have the same topic and the same header.
type put struct {
	topic  string
	header []byte
	bodies [][]byte
	stored []func()
	bytes  int
	since  time.Time // first attempt
	tried  time.Time // last attempt
	tries  int
}

// publisher keeps a window of unanswered puts over one connection at a time. One goroutine
// owns it; others read the input and the answers.
type publisher struct {
	o  Options
	at int // index in o.Addresses

	conn    *nsqclient.Conn
	closed  chan struct{} // ends the reader of conn
	answers chan answer   // of conn
	sent    []*put        // in the order of their answers
	again   []*put        // to be retried, not before their time
	next    *put          // collects the messages of a batch
	gather  time.Time     // deadline of next
	bytes   int           // of the unanswered puts
	totals  Totals
}

// answer is one frame, or the end of the connection.
type answer struct {
	kind uint32
	text string
	err  error
}

// Run publishes every non-empty line of in as one message, and returns when all are answered
// OK, when a put or a connection has failed permanently, or at once when ctx ends. The totals
// are valid in each case. A goroutine that waits for in may stay until the process ends.
func Run(ctx context.Context, in io.Reader, o Options) (Totals, error) {
	lines, failed := readLines(ctx, o.Topic, in)
	totals, err := Send(ctx, lines, o)
	if err == nil {
		err = <-failed
	}
	return totals, err
}

// Send publishes the messages of a channel until it is closed, and returns as Run does.
func Send(ctx context.Context, messages <-chan Message, o Options) (Totals, error) {
	p := &publisher{o: o}
	err := p.run(ctx, messages)
	return p.totals, err
}

// run publishes all messages and waits for the answers. It returns at once when ctx ends.
func (p *publisher) run(ctx context.Context, in <-chan Message) error {
	defer p.disconnect()
	if err := p.connect(ctx, time.Now()); ctx.Err() != nil {
		return p.interrupted()
	} else if err != nil {
		return err
	}
	for in != nil || p.next != nil || len(p.sent)+len(p.again) > 0 {
		if err := p.step(ctx, &in); ctx.Err() != nil {
			return p.interrupted()
		} else if err != nil {
			return err
		}
	}
	return nil
}

// readLines reads the input ahead. Its goroutine ends with the input, or with the process if it waits for a terminal.
func readLines(ctx context.Context, topic string, in io.Reader) (lines chan Message, failed chan error) {
	lines, failed = make(chan Message, linesAhead), make(chan error, 1)
	ahead := make(chan struct{}, chunksAhead)
	go func() {
		defer close(lines)
		scan := bufio.NewScanner(in)
		scan.Split(splitLines)
		scan.Buffer(make([]byte, 64<<10), maxLine+1) // with the newline
		for scan.Scan() {
			if len(scan.Bytes()) == 0 {
				continue
			}
			chunks := min(len(scan.Bytes())>>16, chunksAhead)
			for range chunks {
				select {
				case ahead <- struct{}{}:
				case <-ctx.Done():
					return
				}
			}
			select {
			case lines <- Message{Topic: topic, Body: slices.Clone(scan.Bytes()), taken: func() {
				for range chunks {
					<-ahead
				}
			}}:
			case <-ctx.Done():
				return
			}
		}
		switch err := scan.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			failed <- fmt.Errorf("reading the input: a line is longer than the largest message that a broker can take, %d bytes", maxLine)
		case err != nil:
			failed <- fmt.Errorf("reading the input: %w", err)
		default:
			failed <- nil
		}
	}()
	return lines, failed
}

// splitLines splits at newlines alone: a carriage return before one belongs to the message.
func splitLines(data []byte, atEnd bool) (advance int, line []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEnd && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// step sends the puts that are due, and waits for the next event.
func (p *publisher) step(ctx context.Context, in *<-chan Message) error {
	p.sendAgain()
	more := *in
	if len(p.sent)+len(p.again) >= p.o.Window || p.bytes >= bytesUnderway {
		more = nil
	}
	select { // messages that are at hand are sent together
	case m, open := <-more:
		p.add(in, m, open)
		return nil
	default:
	}
	if p.next != nil && (*in == nil || !time.Now().Before(p.gather)) {
		p.sendNext()
	}
	if p.writing(); ctx.Err() != nil {
		return ctx.Err()
	}
	if err := p.conn.W.Flush(); err != nil {
		return p.lost(ctx, err)
	}
	timer := time.NewTimer(p.untilDue())
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case m, open := <-more:
		p.add(in, m, open)
	case a := <-p.answers:
		return p.answered(ctx, a)
	case <-timer.C:
		if len(p.sent) > 0 && time.Since(p.sent[0].tried) >= p.o.Timeout {
			return p.lost(ctx, fmt.Errorf("no answer within %s", p.o.Timeout))
		}
	}
	return nil
}

func (p *publisher) untilDue() time.Duration {
	due := p.o.Timeout
	if p.next != nil {
		due = min(due, time.Until(p.gather))
	}
	if len(p.again) > 0 {
		due = min(due, time.Until(p.again[0].tried.Add(retryEvery)))
	}
	if len(p.sent) > 0 {
		due = min(due, time.Until(p.sent[0].tried.Add(p.o.Timeout)))
	}
	return due
}

// add adds a message of the input to the batch, or handles the end of the input.
func (p *publisher) add(in *<-chan Message, m Message, open bool) {
	if !open {
		*in = nil
		return
	}
	if p.next != nil && !p.next.takes(m) {
		p.sendNext()
	}
	if p.next == nil {
		p.next, p.gather = &put{topic: m.Topic, header: m.Header}, time.Now().Add(p.o.Linger)
	}
	if m.taken != nil {
		m.taken()
	}
	p.next.bodies = append(p.next.bodies, m.Body)
	p.next.bytes += len(m.Body) + 1
	if m.Stored != nil {
		p.next.stored = append(p.next.stored, m.Stored)
	}
	if len(p.next.bodies) >= p.o.Batch {
		p.sendNext()
	}
}

// takes reports whether a message may join the put.
func (x *put) takes(m Message) bool {
	size := (len(x.bodies)+1)*(len(x.header)+4) + x.bytes + len(m.Body)
	return x.topic == m.Topic && bytes.Equal(x.header, m.Header) && size <= maxBatchBytes
}

func (p *publisher) sendNext() {
	x := p.next
	p.next = nil
	p.bytes += x.bytes
	x.since = time.Now()
	p.send(x)
}

func (p *publisher) send(x *put) {
	x.tries++
	x.tried = time.Now()
	p.writing()
	p.conn.Publish(x.topic, x.header, x.bodies)
	p.sent = append(p.sent, x)
}

// writing bounds the next write. Ctrl-C ends a write in progress (connect).
func (p *publisher) writing() { _ = p.conn.SetWriteDeadline(time.Now().Add(p.o.Timeout)) }

// sendAgain retries refused puts after a moment: puts that failed together are sent together.
func (p *publisher) sendAgain() {
	for len(p.again) > 0 && time.Since(p.again[0].tried) >= retryEvery {
		x := p.again[0]
		p.again = p.again[1:]
		p.send(x)
	}
}

func (p *publisher) answered(ctx context.Context, a answer) error {
	switch {
	case a.err != nil:
		return p.lost(ctx, a.err)
	case a.kind == nsqclient.FrameResponse && a.text == nsqclient.Heartbeat:
		_, err := p.conn.W.WriteString("NOP\n")
		return err
	case len(p.sent) == 0:
		return p.lost(ctx, fmt.Errorf("an answer without a put: %s", a.text))
	}
	x := p.sent[0]
	p.sent = p.sent[1:]
	if a.kind == nsqclient.FrameResponse {
		p.stored(x)
		if p.o.Progress != nil {
			p.o.Progress(x.bytes)
		}
		return nil
	}
	// A connection that was made before the broker had users has sent no secret; the next connection sends it.
	anonymous := strings.HasPrefix(a.text, "E_AUTH_FIRST ") && p.o.Dialer.Secret != ""
	// A broker would refuse the put again (too large, an invalid name, no permission), unless the code is E_PUB_FAILED
	// or E_MPUB_FAILED.
	code, _, _ := strings.Cut(a.text, " ")
	if !anonymous && !strings.HasSuffix(code, "PUB_FAILED") || p.over(x) {
		return p.gaveUp(x, &nsqclient.Refusal{Text: a.text})
	}
	if strings.Contains(a.text, outcome.ErrInDoubt.Error()) {
		p.totals.InDoubt++
		p.report("%s: publishing the put again, so it may be stored twice", a.text)
	} else {
		p.totals.Retried++
		p.report("%s: %s", a.text, p.retrying())
	}
	p.again = append(p.again, x)
	if anonymous || strings.Contains(a.text, outcome.ErrNotReady.Error()) && len(p.o.Addresses) > 1 {
		return p.nextBroker(ctx, x.since)
	}
	return nil
}

// stored counts a put that was answered OK.
func (p *publisher) stored(x *put) {
	p.bytes -= x.bytes
	p.totals.Messages += int64(len(x.bodies))
	for _, f := range x.stored {
		f()
	}
}

// retrying is the text for a failure that is not the last one.
func (p *publisher) retrying() string {
	if p.o.Retry == Forever {
		return "retrying"
	}
	return fmt.Sprintf("retrying for up to %s", p.o.Retry)
}

func (p *publisher) report(format string, args ...any) { p.o.Report(fmt.Sprintf(format, args...)) }

// over reports whether the retries of a put have used up --retry.
func (p *publisher) over(x *put) bool { return time.Since(x.since) > p.o.Retry }

func (p *publisher) gaveUp(x *put, cause error) error {
	if x.tries == 1 {
		return fmt.Errorf("a put failed: %w", cause)
	}
	return fmt.Errorf("a put failed %d times, last: %w", x.tries, cause)
}

// lost continues over another connection. A put without an answer is in doubt, and is retried.
func (p *publisher) lost(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	since := time.Now()
	for _, x := range slices.Concat(p.sent, p.again) {
		if x.since.Before(since) {
			since = x.since
		}
	}
	if n := len(p.sent); n > 0 {
		p.totals.InDoubt += int64(n)
		p.report("%s: %v; in doubt: %s without an answer, published again and possibly stored twice", p.address(), cause, api.Count(n, "put"))
		if p.over(p.sent[0]) {
			return p.gaveUp(p.sent[0], fmt.Errorf("%s: %w", p.address(), cause))
		}
	} else {
		p.report("%s: %v; reconnecting", p.address(), cause)
	}
	return p.nextBroker(ctx, since)
}

// nextBroker moves all unanswered puts to the next address.
func (p *publisher) nextBroker(ctx context.Context, since time.Time) error {
	p.disconnect()
	p.again = append(p.sent, p.again...)
	p.sent = nil
	p.at++
	return p.connect(ctx, since)
}

func (p *publisher) disconnect() {
	if p.conn != nil {
		close(p.closed)
		_ = p.conn.Close() // unsent bytes are dropped
		p.conn = nil
	}
}

// address is where the publisher is connected, or tries to connect.
func (p *publisher) address() string { return p.o.Addresses[p.at%len(p.o.Addresses)] }

// connect tries the addresses in turn, until --retry after since.
func (p *publisher) connect(ctx context.Context, since time.Time) error {
	for {
		address := p.address()
		c, err := p.o.Dialer.Dial(ctx, address, min(p.o.Timeout, greetTimeout))
		if err == nil {
			p.conn, p.closed, p.answers = c, make(chan struct{}), make(chan answer, p.o.Window+1)
			go read(c, p.answers, p.closed)
			context.AfterFunc(ctx, func() { _ = c.SetWriteDeadline(time.Unix(1, 0)) })
			return nil
		}
		err = brokerapi.Reason(err)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case final(err):
			return fmt.Errorf("%s: %w", address, err)
		case time.Since(since) > p.o.Retry:
			return fmt.Errorf("given up after %s, last: %s: %w", p.o.Retry, address, err)
		}
		p.report("%s: %v; %s", address, err, p.retrying())
		p.at++
		if !concurrency.Sleep(ctx, connectEvery) {
			return ctx.Err()
		}
	}
}

// final reports whether a broker, or this program, refuses the connection permanently. A broker that is starting has
// not read its users yet, and a broker that is full may have room later.
func final(err error) bool {
	if r, refused := errors.AsType[*nsqclient.Refusal](err); refused {
		return !strings.Contains(r.Error(), outcome.ErrNotReady.Error()) && !strings.Contains(r.Error(), "E_TOO_MANY_CONNECTIONS")
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return untrusted || errors.Is(err, nsqclient.ErrNoTLS)
}

// read passes on every frame, until the connection ends or is closed.
func read(c *nsqclient.Conn, to chan<- answer, closed <-chan struct{}) {
	for {
		kind, data, err := c.Frame()
		select {
		case to <- answer{kind, string(data), err}:
		case <-closed:
			return
		}
		if err != nil {
			return
		}
	}
}

// interrupted reads the answers that arrive within lastAnswers, and reports the puts without an answer.
func (p *publisher) interrupted() error {
	for limit := time.After(lastAnswers); len(p.sent) > 0 && p.conn != nil; {
		a := answer{err: context.Canceled}
		select {
		case a = <-p.answers:
		case <-limit:
		}
		if a.err != nil {
			break
		}
		switch {
		case a.kind == nsqclient.FrameResponse && a.text == nsqclient.Heartbeat:
			continue
		case a.kind == nsqclient.FrameResponse:
			p.stored(p.sent[0])
		default:
			p.again = append(p.again, p.sent[0])
		}
		p.sent = p.sent[1:]
	}
	text := "interrupted"
	if n := len(p.sent); n > 0 {
		text += fmt.Sprintf("; %s without an answer may be stored", api.Count(n, "put"))
	}
	if n := len(p.again); n > 0 {
		text += fmt.Sprintf("; last refused: %s", api.Count(n, "put"))
	}
	return errors.New(text)
}
