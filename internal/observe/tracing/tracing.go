// Package tracing exports the processing of single messages as OpenTelemetry spans, by OTLP over gRPC.
//
// There are three kinds of spans: "publish TOPIC" at the broker that a producer is connected to, from the put to its
// answer; "store TOPIC" at the broker that leads the partition, with the stages queue, journal and replicate below it;
// "deliver TOPIC" at the broker of the consumer, with wait and in flight. Their parent is the message's traceparent
// (W3C), in its headers or in the HTTP header of the request. Each broker independently samples a share of the messages
// without a traceparent: brokers exchange no trace contexts.
//
// The outcome of a delivery is the answer of the consumer's broker. If a leader on another broker refuses a finish later, the
// span does not show it.
//
// A goroutine of the package makes the spans when an operation has ended. A put never waits for it: the package drops and counts
// operations and spans that the goroutine or the collector cannot take in time.
//
// Invariants:
//
//  1. A nil *Tracer traces nothing, and returns the values that it would wrap unchanged.
//  2. No span has a body, a key, a header or a secret.
//  3. At most tracesPerSecond operations a second are traced, however many have a sampled parent.
package tracing

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
	"google.golang.org/grpc/credentials"

	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	// tracesPerSecond bounds the operations that are traced.
	tracesPerSecond = 500
	// waiting bounds the operations whose spans have not been created yet.
	waiting = 2048
	// exportTimeout bounds one request to the collector.
	defaultExportTimeout = 5 * time.Second
	// closeTimeout bounds the last request, at the stop.
	defaultCloseTimeout = 2 * time.Second
	// complainEvery is the shortest time between two log lines about the collector.
	complainEvery = time.Minute
)

// The limits of an export, as variables for the tests.
var exportTimeout, closeTimeout = defaultExportTimeout, defaultCloseTimeout

// headerParent is the header of a message, and of an HTTP request, with its position in a trace.
const headerParent = queue.HeaderParent

// Options of a tracer.
type Options struct {
	// Address is where the collector listens, host:port. Plain: without TLS.
	Address string
	Plain   bool
	// Sample is the share of messages without a parent that are traced, 0 to 1.
	Sample        float64
	Node, Version string
	// MsgTimeout is the message timeout of consumers that set none.
	MsgTimeout time.Duration
	// Count counts spans as metrics.SpansSent or metrics.SpansDropped; nil = nothing is counted.
	Count func(metrics.Count, int)
	Log   logrus.FieldLogger
}

// Tracer makes spans. Its methods may be called by any goroutine, and on nil.
type Tracer struct {
	o        Options
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	limit    *rate.Limiter
	jobs     chan func(trace.Tracer)
	stop     chan struct{}
	done     sync.WaitGroup
}

// New starts to export. It does not wait for the collector.
func New(o Options) (*Tracer, error) {
	grpc := []otlptracegrpc.Option{
		otlptracegrpc.WithEndpoint(o.Address), otlptracegrpc.WithTimeout(exportTimeout),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: false}), // no retry: the next spans are newer
	}
	if o.Plain { // set explicitly in both cases, because the exporter also reads the environment
		grpc = append(grpc, otlptracegrpc.WithInsecure())
	} else {
		grpc = append(grpc, otlptracegrpc.WithTLSCredentials(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})))
	}
	exporter, err := otlptracegrpc.New(context.Background(), grpc...)
	if err != nil {
		return nil, fmt.Errorf("trace exporter: %w", err)
	}
	if o.Count == nil {
		o.Count = func(metrics.Count, int) {}
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&counted{SpanExporter: exporter, o: o},
			sdktrace.WithBlocking(), sdktrace.WithBatchTimeout(time.Second), sdktrace.WithExportTimeout(exportTimeout)),
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // origin decides
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "lockstep"), attribute.String("service.instance.id", o.Node),
			attribute.String("service.version", o.Version))),
	)
	t := &Tracer{
		o: o, provider: provider, tracer: provider.Tracer("lockstep"), limit: rate.NewLimiter(tracesPerSecond, tracesPerSecond),
		jobs: make(chan func(trace.Tracer), waiting), stop: make(chan struct{}),
	}
	t.done.Go(t.work)
	return t, nil
}

// Close sends the remaining spans, and waits at most two seconds for that.
func (t *Tracer) Close() {
	if t == nil {
		return
	}
	close(t.stop)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t.done.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = t.provider.Shutdown(ctx) // its failure is counted
	}()
	select {
	case <-ended:
	case <-time.After(closeTimeout):
	}
}

func (t *Tracer) work() {
	for {
		select {
		case job := <-t.jobs:
			job(t.tracer)
		case <-t.stop:
			for len(t.jobs) > 0 { // nobody else receives
				(<-t.jobs)(t.tracer)
			}
			return
		}
	}
}

// make queues the creation of spans, or drops them if the queue is full.
func (t *Tracer) make(spans func(trace.Tracer)) {
	select {
	case t.jobs <- spans:
	default:
		t.o.Count(metrics.SpansDropped, 1)
	}
}

// origin is the position of a traced operation in its trace.
type origin struct{ parent trace.SpanContext }

func (o *origin) context() context.Context {
	return trace.ContextWithRemoteSpanContext(context.Background(), o.parent)
}

// origin decides whether an operation on a message with this header is traced; nil: it is not.
func (t *Tracer) origin(header []byte) *origin {
	parent := parentOf(header)
	sampled := parent.IsSampled()
	if !parent.IsValid() {
		sampled = t.o.Sample > 0 && rand.Float64() < t.o.Sample
	}
	if !sampled || !t.limit.Allow() {
		return nil
	}
	return &origin{parent}
}

// parentOf reads the traceparent of a message's header, or returns the zero value if there is none.
func parentOf(header []byte) trace.SpanContext {
	const spaces = " \t\r\n"
	_, rest, ok := bytes.Cut(header, []byte(`"`+headerParent+`"`)) // inside a JSON string its quotes would be escaped
	if !ok {
		return trace.SpanContext{}
	}
	rest, colon := bytes.CutPrefix(bytes.TrimLeft(rest, spaces), []byte(":"))
	rest, quote := bytes.CutPrefix(bytes.TrimLeft(rest, spaces), []byte(`"`))
	text, _, end := bytes.Cut(rest, []byte(`"`))
	if !colon || !quote || !end {
		return trace.SpanContext{}
	}
	return parsed(string(text))
}

func parsed(parent string) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{headerParent: parent})
	return trace.SpanContextFromContext(ctx)
}

// counted is an exporter whose spans are counted. It reports no error: spans that cannot be sent are dropped.
type counted struct {
	sdktrace.SpanExporter
	o    Options
	last time.Time // the last log line; exports come one at a time
}

func (c *counted) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		c.o.Count(metrics.SpansSent, len(spans))
		return nil
	}
	c.o.Count(metrics.SpansDropped, len(spans))
	if now := time.Now(); now.Sub(c.last) >= complainEvery {
		c.last = now
		c.o.Log.WithError(err).WithField("address", c.o.Address).Warn("cannot send traces to the collector, dropping them")
	}
	return nil
}
