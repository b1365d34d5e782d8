// Package metrics is the broker's Prometheus metrics: how long each stage of a put and of a
// delivery takes, the outcomes of puts, the events of replicas, and the fill of topics,
// channels and queues.
//
// It measures nothing itself and imports of Lockstep the table of outcomes alone. Events are
// reported to a Recorder. States (depths, fill levels) are read at each scrape, so they cost
// nothing in between.
//
// # Invariants
//
//  1. A nil *Recorder is a Recorder that does nothing.
//  2. Recording allocates nothing, takes no lock that a scrape holds for long, and never
//     blocks.
//  3. The number of series is bounded: topics and channels beyond the limit are summed
//     under one name, and every other label has a closed set of values.
package metrics

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lockstepmq/lockstep/internal/outcome"
)

const namespace = "lockstep"

// buckets reach from a sync that reaches no disk (50 µs) to the longest wait of a producer (10
// s), about two per octave where the promises are.
var buckets = []float64{
	50e-6, 100e-6, 200e-6, 350e-6, 500e-6, 750e-6, 1e-3, 2e-3, 3.5e-3, 5e-3, 7.5e-3,
	10e-3, 20e-3, 35e-3, 50e-3, 100e-3, 200e-3, 350e-3, 500e-3, 1, 2, 5, 10,
}

// Stage is one part of the processing of a put, in its order.
type Stage uint8

// The stages of a put.
const (
	StageQueue     Stage = iota // waiting for the partition's core loop
	StageWrite                  // sealing and submitting to the journal
	StageSync                   // until the local journal is durable
	StageReplicate              // until all in-sync replicas have it durably
	StageCommit                 // from the arrival to the answer
	stages
)

// String returns the value of the label.
func (s Stage) String() string {
	return [stages]string{"queue", "write", "sync", "replicate", "commit"}[s]
}

// Event is a rare event of a partition or a broker.
type Event uint8

// The events.
const (
	EventElected     Event = iota // this broker became a partition's leader
	EventSteppedDown              // this broker is no longer a partition's leader
	EventRemoved                  // a replica left the in-sync set
	EventJoined                   // a replica joined the in-sync set again
	EventRollback                 // uncommitted puts were rolled back under a new epoch
	EventTruncated                // a follower truncated a suffix at its leader's request
	EventRestarted                // a replica restarted behind the first retained offset
	EventRegistered               // this broker registered with the metadata store
	EventLost                     // this broker lost its registration
	EventAlarm                    // a replica refused a message that violates the protocol
	EventRepeated                 // a put was stored before: a gateway retried it
	EventRepaired                 // a damaged place was repaired from another replica's copy
	events
)

// String returns the value of the label.
func (e Event) String() string {
	return [events]string{"elected", "stepped_down", "isr_removed", "isr_joined", "rollback", "truncated", "restarted", "registered", "registration_lost", "alarm", "put_repeated", "mended"}[e]
}

// Recorder records events. All methods are safe for concurrent use and do nothing on a nil
// Recorder.
type Recorder struct {
	registry  *prometheus.Registry
	queues    *queues
	stage     [stages]prometheus.Observer
	ok        prometheus.Counter            // puts that were answered OK
	refused   map[string]prometheus.Counter // the other answers to puts, by label; never changes
	event     [events]prometheus.Counter
	limit     [refusals]prometheus.Counter
	wait      prometheus.Observer
	delivery  prometheus.Observer
	delivered prometheus.Counter
	put       struct{ messages, bytes prometheus.Counter }
}

// New returns a Recorder with its own registry. At most maxSeries topics and channels appear
// by name.
func New(maxSeries int) *Recorder {
	r := &Recorder{registry: prometheus.NewRegistry(), queues: newQueues(maxSeries)}
	r.registry.MustRegister(r.queues, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.registerPuts()
	r.registerRefusals()
	r.wait = r.histogram("message_wait_seconds", "Time from a put, or from the end of its delay, to the first delivery, for the first message of each burst.")
	r.delivery = r.histogram("delivery_seconds", "Time from pulling a burst of messages from a channel to the end of its write to the client.")
	r.delivered = r.counter("messages_delivered_total", "Messages written to clients.")
	happened := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "events_total", Help: "Events of partitions and of this broker."}, []string{"event"})
	r.registry.MustRegister(happened)
	for e := range events {
		r.event[e] = happened.WithLabelValues(e.String())
	}
	return r
}

func (r *Recorder) registerPuts() {
	stage := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: "put_stage_seconds", Help: "Time that a put spends in each stage.", Buckets: buckets}, []string{"stage"})
	puts := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "puts_total", Help: "Puts of this broker's clients, by their answer."}, []string{"answer"})
	r.registry.MustRegister(stage, puts)
	for s := range stages {
		r.stage[s] = stage.WithLabelValues(s.String())
	}
	r.ok = puts.WithLabelValues(outcome.LabelOf(nil))
	r.refused = map[string]prometheus.Counter{outcome.LabelRefused: puts.WithLabelValues(outcome.LabelRefused)}
	for _, row := range outcome.Rows() {
		if row.Err != nil && row.Label != "" {
			r.refused[row.Label] = puts.WithLabelValues(row.Label)
		}
	}
	r.put.messages = r.counter("messages_put_total", "Messages committed by partitions that this broker leads.")
	r.put.bytes = r.counter("bytes_put_total", "Bytes of the bodies of these messages.")
}

func (r *Recorder) histogram(name, help string) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets})
	r.registry.MustRegister(h)
	return h
}

func (r *Recorder) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	r.registry.MustRegister(c)
	return c
}

// Handler returns the handler of /metrics.
func (r *Recorder) Handler() http.Handler {
	if r == nil {
		return http.NotFoundHandler()
	}
	return promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{})
}

// Stage records how long one put or group of puts spent in a stage.
func (r *Recorder) Stage(s Stage, d time.Duration) {
	if r != nil {
		r.stage[s].Observe(d.Seconds())
	}
}

// Answered records the answer to a put of a client of this broker, after all retries; nil
// is OK.
func (r *Recorder) Answered(err error) {
	switch {
	case r == nil:
	case err == nil:
		r.ok.Inc()
	default:
		r.refused[outcome.LabelOf(err)].Inc()
	}
}

// Stored records a committed put of a partition that this broker leads.
func (r *Recorder) Stored(messages, bytes int) {
	if r != nil {
		r.put.messages.Add(float64(messages))
		r.put.bytes.Add(float64(bytes))
	}
}

// Delivered records a burst of messages to one client, and the duration of its write.
func (r *Recorder) Delivered(messages int, took time.Duration) {
	if r != nil {
		r.delivered.Add(float64(messages))
		r.delivery.Observe(took.Seconds())
	}
}

// Waited records the time between a put and the first delivery of its message.
func (r *Recorder) Waited(d time.Duration) {
	if r != nil {
		r.wait.Observe(max(d, 0).Seconds()) // clocks of brokers differ
	}
}

// Event counts one event.
func (r *Recorder) Event(e Event) {
	if r != nil {
		r.event[e].Inc()
	}
}

// Gauge adds a value that is read at each scrape, such as the fill of a bounded queue. The
// name has no namespace; f must not block. A later Gauge of the same name replaces it: its
// owner was restarted.
func (r *Recorder) Gauge(name, help string, f func() float64) {
	if r != nil {
		r.replace(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, f))
	}
}

// Counter adds a count that is read at each scrape and never decreases. A later Counter of the
// same name replaces it, as with Gauge.
func (r *Recorder) Counter(name, help string, f func() float64) {
	if r != nil {
		r.replace(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, f))
	}
}

func (r *Recorder) replace(c prometheus.Collector) {
	err := r.registry.Register(c)
	if before, there := errors.AsType[prometheus.AlreadyRegisteredError](err); there {
		r.registry.Unregister(before.ExistingCollector)
		err = r.registry.Register(c)
	}
	if err != nil {
		panic(err) // two different metrics with one name
	}
}
