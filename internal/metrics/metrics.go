// Package metrics is the broker's Prometheus metrics: how long each stage of a
// put and of a delivery takes, what happened to puts and replicas, and how full
// topics, channels and queues are.
//
// It measures nothing by itself and knows no other package of Lockstep. What
// happens is told to a Recorder; what is (depths, fill levels) is asked for at
// each scrape, so it costs nothing in between.
//
// Invariants:
//
//  1. A nil *Recorder is a Recorder that does nothing.
//  2. Recording allocates nothing, takes no lock that a scrape holds for long,
//     and never blocks.
//  3. The number of series is bounded: topics and channels beyond the limit are
//     summed up under one name, everything else is a closed set.
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const namespace = "lockstep"

// buckets reach from a sync that hits no disk (50 µs) to the longest wait of a
// producer (10 s), about two per octave where the promises are.
var buckets = []float64{
	50e-6, 100e-6, 200e-6, 350e-6, 500e-6, 750e-6, 1e-3, 2e-3, 3.5e-3, 5e-3, 7.5e-3,
	10e-3, 20e-3, 35e-3, 50e-3, 100e-3, 200e-3, 350e-3, 500e-3, 1, 2, 5, 10,
}

// Stage is one part of the way of a put, in its order.
type Stage uint8

// The stages of a put.
const (
	StageQueue     Stage = iota // waiting for the partition's loop
	StageWrite                  // sealing and submitting to the journal
	StageSync                   // until the local journal is durable
	StageReplicate              // until all in-sync replicas have it durable
	StageCommit                 // from the arrival to the answer
	stages
)

// String is the label's value.
func (s Stage) String() string {
	return [stages]string{"queue", "write", "sync", "replicate", "commit"}[s]
}

// Answer is what a producer was told, after all retries.
type Answer uint8

// The answers to a put. All but OK and in doubt mean that nothing is stored.
const (
	PutOK        Answer = iota
	PutNotEnough        // too few in-sync replicas
	PutRolledBack
	PutInDoubt
	PutNoLeader
	PutTopicFull
	PutDiskFull
	PutRefused // any other reason: the topic cannot be made, too much waits, the broker stops
	answers
)

// String is the label's value.
func (a Answer) String() string {
	return [answers]string{"ok", "not_enough_in_sync", "rolled_back", "in_doubt", "no_leader", "topic_full", "disk_full", "refused"}[a]
}

// Event is something that happens to a partition or a broker now and then.
type Event uint8

// The events.
const (
	EventElected     Event = iota // this broker became a partition's leader
	EventSteppedDown              // … or stopped being it
	EventRemoved                  // a replica left the in-sync set
	EventJoined                   // … or came back
	EventRollback                 // uncommitted puts were taken back under a new epoch
	EventTruncated                // a follower cut a suffix on its leader's word
	EventRestarted                // a replica started afresh behind the first retained offset
	EventRegistered               // this broker registered with the metadata store
	EventLost                     // … and lost its registration
	EventAlarm                    // a replica refused something that must not happen
	EventRepeated                 // a put was stored before: an edge had asked again
	EventMended                   // a damaged place was mended with another replica's copy
	events
)

// String is the label's value.
func (e Event) String() string {
	return [events]string{"elected", "stepped_down", "isr_removed", "isr_joined", "rollback", "truncated", "restarted", "registered", "registration_lost", "alarm", "put_repeated", "mended"}[e]
}

// Recorder takes what happens. All methods are safe for concurrent use and do
// nothing on a nil Recorder.
type Recorder struct {
	registry  *prometheus.Registry
	queues    *queues
	stage     [stages]prometheus.Observer
	puts      [answers]prometheus.Counter
	event     [events]prometheus.Counter
	wait      prometheus.Observer
	delivery  prometheus.Observer
	delivered prometheus.Counter
	put       struct{ messages, bytes prometheus.Counter }
}

// New gives a Recorder with a registry of its own. At most maxSeries topics and
// channels appear by name.
func New(maxSeries int) *Recorder {
	r := &Recorder{registry: prometheus.NewRegistry(), queues: newQueues(maxSeries)}
	r.registry.MustRegister(r.queues, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.registerPuts()
	r.wait = r.histogram("message_wait_seconds", "Time from a put, or from the end of its delay, to the first delivery; of the first message of each burst.")
	r.delivery = r.histogram("delivery_seconds", "Time from taking a burst of messages out of a channel to having written it to the client.")
	r.delivered = r.counter("messages_delivered_total", "Messages written to clients.")
	happened := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "events_total", Help: "Things that happened to partitions and to this broker."}, []string{"event"})
	r.registry.MustRegister(happened)
	for e := range events {
		r.event[e] = happened.WithLabelValues(e.String())
	}
	return r
}

func (r *Recorder) registerPuts() {
	stage := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: "put_stage_seconds", Help: "Time that a put spends in each stage.", Buckets: buckets}, []string{"stage"})
	puts := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "puts_total", Help: "Puts of this broker's clients, by the answer they got."}, []string{"answer"})
	r.registry.MustRegister(stage, puts)
	for s := range stages {
		r.stage[s] = stage.WithLabelValues(s.String())
	}
	for a := range answers {
		r.puts[a] = puts.WithLabelValues(a.String())
	}
	r.put.messages = r.counter("messages_put_total", "Messages committed by partitions led here.")
	r.put.bytes = r.counter("bytes_put_total", "Bytes of their bodies.")
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

// Handler serves /metrics.
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

// Answered records what a client of this broker was told.
func (r *Recorder) Answered(a Answer) {
	if r != nil {
		r.puts[a].Inc()
	}
}

// Stored records a committed put of a partition that is led here.
func (r *Recorder) Stored(messages, bytes int) {
	if r != nil {
		r.put.messages.Add(float64(messages))
		r.put.bytes.Add(float64(bytes))
	}
}

// Delivered records a burst of messages written to one client, and what it
// took.
func (r *Recorder) Delivered(messages int, took time.Duration) {
	if r != nil {
		r.delivered.Add(float64(messages))
		r.delivery.Observe(took.Seconds())
	}
}

// Waited records the time between a put and the first delivery of its message.
func (r *Recorder) Waited(d time.Duration) {
	if r != nil {
		r.wait.Observe(max(d, 0).Seconds()) // brokers' clocks differ
	}
}

// Event counts something that happened.
func (r *Recorder) Event(e Event) {
	if r != nil {
		r.event[e].Inc()
	}
}

// Gauge adds a value that is asked for at each scrape, such as the fill of a
// bounded queue. The name is without namespace; f must not block.
func (r *Recorder) Gauge(name, help string, f func() float64) {
	if r != nil {
		r.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, f))
	}
}

// Counter adds a count that is asked for at each scrape; it never decreases.
func (r *Recorder) Counter(name, help string, f func() float64) {
	if r != nil {
		r.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, f))
	}
}
