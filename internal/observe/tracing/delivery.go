package tracing

import (
	"cmp"
	"context"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

const openMost = 1000

// Subscribers traces the deliveries of all subscriptions that are opened through them.
func (t *Tracer) Subscribers(next api.Subscribers) api.Subscribers {
	if t == nil {
		return next
	}
	return subscribers{next, t}
}

type subscribers struct {
	next api.Subscribers
	t    *Tracer
}

func (s subscribers) Subscribe(ctx context.Context, r api.SubscribeRequest) (api.Subscription, error) {
	sub, err := s.next.Subscribe(ctx, r)
	if err != nil {
		return sub, err
	}
	timeout := cmp.Or(time.Duration(r.MsgTimeoutMS)*time.Millisecond, s.t.o.MsgTimeout, time.Minute)
	return &subscription{Subscription: sub, t: s.t, topic: r.Topic, channel: r.Channel, timeout: timeout}, nil
}

type subscription struct {
	api.Subscription
	t              *Tracer
	topic, channel string
	timeout        time.Duration
	mu             struct {
		sync.Mutex
		open  map[api.MessageID]delivery
		swept time.Time
	}
}

// delivery is a traced delivery whose outcome is not known yet.
type delivery struct {
	o         *origin
	id        api.MessageID
	partition int
	attempts  int
	ready     time.Time // of the first attempt: when the message was published or due
	began     time.Time
	deadline  time.Time // Touch moves it
}

func (s *subscription) Pull(credit int, dst []api.Delivery) []api.Delivery {
	s.sweep(time.Now())
	n := len(dst)
	dst = s.Subscription.Pull(credit, dst)
	for i := range dst[n:] {
		d := &dst[n+i]
		if o := s.t.origin(d.Message.Header); o != nil {
			s.begin(o, d)
		}
	}
	return dst
}

func (s *subscription) begin(o *origin, d *api.Delivery) {
	x := delivery{o: o, id: d.ID, partition: int(d.Partition.Number), attempts: int(d.Message.Attempts), began: time.Now()}
	x.deadline = x.began.Add(s.timeout)
	if d.Message.Attempts == 1 {
		x.ready = time.Unix(0, max(d.Message.Time, d.Message.DeliverAt))
	}
	s.end(d.ID, "timed out") // it comes again
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.open == nil {
		s.mu.open = map[api.MessageID]delivery{}
	}
	if len(s.mu.open) >= openMost {
		s.t.o.Count(metrics.SpansDropped, 1)
		return
	}
	s.mu.open[d.ID] = x
}

// sweep ends the spans of deliveries that have timed out, once a second.
func (s *subscription) sweep(now time.Time) {
	var late []delivery
	s.mu.Lock()
	if len(s.mu.open) > 0 && now.Sub(s.mu.swept) >= time.Second {
		s.mu.swept = now
		for id, x := range s.mu.open {
			if now.After(x.deadline) {
				late = append(late, x)
				delete(s.mu.open, id)
			}
		}
	}
	s.mu.Unlock()
	for _, x := range late {
		s.span(x, "timed out", x.deadline)
	}
}

func (s *subscription) Touch(id api.MessageID) error {
	err := s.Subscription.Touch(id)
	if err == nil {
		s.extend(id)
	}
	return err
}

func (s *subscription) extend(id api.MessageID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x, ok := s.mu.open[id]; ok {
		x.deadline = time.Now().Add(s.timeout)
		s.mu.open[id] = x
	}
}

func (s *subscription) Finish(id api.MessageID) error {
	return s.ended(id, "finished", s.Subscription.Finish(id))
}

func (s *subscription) Requeue(id api.MessageID, delayMS int64) error {
	return s.ended(id, "requeued", s.Subscription.Requeue(id, delayMS))
}

// Settle implements api.Subscription. If it refuses a delivery, the open span belongs to a different delivery, or the
// leader decides.
func (s *subscription) Settle(r api.Receipt, do api.Settlement) error {
	err := s.Subscription.Settle(r, do)
	if err == nil {
		s.Settled(r.ID, do.Verb)
	}
	return err
}

// Settled notes that a verb was carried out on a delivery, here or by the leader of its message.
func (s *subscription) Settled(id api.MessageID, verb api.Verb) {
	switch verb {
	case api.VerbFinish:
		s.end(id, "finished")
	case api.VerbRequeue:
		s.end(id, "requeued")
	case api.VerbTouch:
		s.extend(id)
	}
}

func (s *subscription) ended(id api.MessageID, outcome string, err error) error {
	if err != nil {
		outcome = "timed out"
	}
	s.end(id, outcome)
	return err
}

func (s *subscription) Close(requeue bool) {
	s.Subscription.Close(requeue)
	s.endAll()
}

func (s *subscription) Withdraw() {
	s.Subscription.Withdraw()
	s.endAll()
}

func (s *subscription) endAll() {
	s.mu.Lock()
	open := s.mu.open
	s.mu.open = nil
	s.mu.Unlock()
	for _, x := range open {
		s.span(x, "connection closed", time.Now())
	}
}

func (s *subscription) end(id api.MessageID, outcome string) {
	s.mu.Lock()
	x, ok := s.mu.open[id]
	delete(s.mu.open, id)
	s.mu.Unlock()
	if ok {
		s.span(x, outcome, time.Now())
	}
}

func (s *subscription) span(x delivery, outcome string, end time.Time) {
	s.t.make(func(tr trace.Tracer) {
		start := x.began
		if !x.ready.IsZero() && x.ready.Before(start) {
			start = x.ready
		}
		ctx, span := tr.Start(x.o.context(), "deliver "+s.topic, trace.WithTimestamp(start), trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithAttributes(
				attribute.String("messaging.system", "lockstep"), attribute.String("messaging.operation.type", "process"),
				attribute.String("messaging.destination.name", s.topic), attribute.String("messaging.consumer.group.name", s.channel),
				attribute.String("messaging.destination.partition.id", strconv.Itoa(x.partition)), attribute.String("messaging.message.id", string(x.id[:])),
				attribute.Int("lockstep.attempts", x.attempts), attribute.String("lockstep.outcome", outcome)))
		if start.Before(x.began) {
			stage(ctx, tr, "wait", start, x.began)
		}
		stage(ctx, tr, "in flight", x.began, end)
		span.End(trace.WithTimestamp(end))
	})
}
