package tracing

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Publisher traces the puts that go through a publisher.
func (t *Tracer) Publisher(next api.Publisher) api.Publisher {
	if t == nil {
		return next
	}
	return publisher{next, t}
}

type publisher struct {
	api.Publisher
	t *Tracer
}

func (p publisher) Publish(topic string, partition int, key []byte, d queue.Draft, a api.Answerer) {
	p.Publisher.Publish(topic, partition, key, d, p.t.answer(topic, &d, a))
}

// answered ends the span of a put with its answer.
type answered struct {
	api.Answerer
	t        *Tracer
	o        *origin
	topic    string
	began    time.Time
	messages int
	bytes    int
}

func (t *Tracer) answer(topic string, d *queue.Draft, a api.Answerer) api.Answerer {
	o := t.origin(d.FirstHeader())
	if o == nil {
		return a
	}
	return &answered{a, t, o, topic, time.Now(), int(d.Count), d.BodyBytes()}
}

func (a *answered) Answer(r api.PutResult) {
	end := time.Now()
	a.Answerer.Answer(r)
	a.t.make(func(tr trace.Tracer) {
		_, s := tr.Start(a.o.context(), "publish "+a.topic, trace.WithTimestamp(a.began), trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(put("send", a.topic, a.messages, a.bytes)...))
		if r.Err != nil {
			s.SetStatus(codes.Error, r.Err.Error())
		} else {
			s.SetAttributes(attribute.String("messaging.message.id", string(r.ID[:])), attribute.Bool("lockstep.repeat", r.Duplicate))
		}
		s.End(trace.WithTimestamp(end))
	})
}

// put are the attributes of the spans of a put, by OpenTelemetry's conventions for messaging.
func put(operation, topic string, messages, bytes int) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.system", "lockstep"), attribute.String("messaging.operation.type", operation),
		attribute.String("messaging.destination.name", topic), attribute.Int("messaging.batch.message_count", messages),
		attribute.Int("messaging.message.body.size", bytes),
	}
}

// Stored is the leader's timing of a committed put.
type Stored struct {
	Topic     string
	Partition int
	// Submitted is when the put came to the partition's core loop, Proposed when the loop took it.
	Submitted, Proposed, Committed time.Time
	Synced                         time.Duration // the last sync of the loop's journal
	Messages, Bytes                int
}

// Store decides whether the leader traces a put: the leader calls the result once the put is committed; nil: it is not traced.
func (t *Tracer) Store(d *queue.Draft) func(Stored) {
	if t == nil {
		return nil
	}
	o := t.origin(d.FirstHeader())
	if o == nil {
		return nil
	}
	return func(x Stored) {
		t.make(func(tr trace.Tracer) {
			ctx, s := tr.Start(o.context(), "store "+x.Topic, trace.WithTimestamp(x.Submitted),
				trace.WithAttributes(append(put("store", x.Topic, x.Messages, x.Bytes), attribute.String("messaging.destination.partition.id", strconv.Itoa(x.Partition)))...))
			stage(ctx, tr, "queue", x.Submitted, x.Proposed)
			// The journal's sync runs concurrently with replication.
			if synced := x.Proposed.Add(x.Synced); !synced.After(x.Committed) {
				stage(ctx, tr, "journal", x.Proposed, synced)
			}
			stage(ctx, tr, "replicate", x.Proposed, x.Committed)
			s.End(trace.WithTimestamp(x.Committed))
		})
	}
}

func stage(ctx context.Context, tr trace.Tracer, name string, from, to time.Time) {
	_, s := tr.Start(ctx, name, trace.WithTimestamp(from))
	s.End(trace.WithTimestamp(to))
}

// HTTP adds the traceparent of a publish request to its messages as a header, unless they have one.
func (t *Tracer) HTTP(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if parent := r.Header.Get(headerParent); parent != "" && (r.URL.Path == "/pub" || r.URL.Path == "/mpub") && parsed(parent).IsValid() {
			withParent(r, parent)
		}
		next.ServeHTTP(w, r)
	})
}

// messageHeaders is the HTTP header with the headers of a message (internal/frontend/httpapi).
const messageHeaders = "X-Nsq-Headers"

func withParent(r *http.Request, parent string) {
	fields := map[string]any{}
	given := r.Header.Values(messageHeaders)
	if len(given) > 1 || len(given) == 1 && json.Unmarshal([]byte(given[0]), &fields) != nil || fields == nil {
		return // the endpoint will refuse the malformed header
	}
	if _, has := fields[headerParent]; has {
		return
	}
	fields[headerParent] = parent
	const others = 64 // room for the header that ?ttl= adds
	if b, err := json.Marshal(fields); err == nil && len(b)+others <= queue.MaxMessageHeader {
		r.Header.Set(messageHeaders, string(b))
	}
}
