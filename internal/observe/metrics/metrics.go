package metrics

import (
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
)

const namespace = "lockstep"

// buckets range from 50 µs (a sync that does not reach a disk) to 10 s (the longest put wait), about two per octave where the
// promises are.
var buckets = []float64{
	50e-6, 100e-6, 200e-6, 350e-6, 500e-6, 750e-6, 1e-3, 2e-3, 3.5e-3, 5e-3, 7.5e-3,
	10e-3, 20e-3, 35e-3, 50e-3, 100e-3, 200e-3, 350e-3, 500e-3, 1, 2, 5, 10,
}

// waitBuckets range from a consumer that waits for messages to one that was disconnected for days.
var waitBuckets = []float64{
	1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3, 200e-3, 500e-3, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600,
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

var stageLabels = [stages]string{"queue", "write", "sync", "replicate", "commit"}

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

var eventLabels = [events]string{
	"elected", "stepped_down", "isr_removed", "isr_joined", "rollback", "truncated", "restarted", "registered", "registration_lost",
	"alarm", "put_repeated", "mended",
}

// Count is a number that Add increases.
type Count uint8

// The counts.
const (
	PutsForwarded   Count = iota // puts sent to the broker that leads their partition
	MessagesRelayed              // messages that came from another broker for consumers of this one
	PutsRolledBack               // puts that this broker, as their leader, rolled back
	PutsInDoubt                  // puts that this broker, as their leader, left in doubt
	SpansSent                    // spans that the trace collector accepted
	SpansDropped                 // other spans
	IdleTopics                   // topics moved to the trash because nothing used them
	IdleChannels                 // channels deleted because nothing used them
	counts
)

// countSeries are the names and labels of the counts.
var countSeries = [counts][]string{
	{"puts_forwarded_total"}, {"messages_relayed_total"}, {"replica_puts_rolled_back_total"}, {"replica_puts_in_doubt_total"},
	{"trace_spans_sent_total"}, {"trace_spans_dropped_total"}, {"idle_removed_total", "topic"}, {"idle_removed_total", "channel"},
}

// Timing is an operation whose duration Took records.
type Timing uint8

// The timings.
const (
	JournalSync Timing = iota // one sync of the journal
	Checkpoint                // one checkpoint of the store
	Election                  // from a candidacy of this broker to its leadership
	timings
)

// Recorder records events. All methods are safe for concurrent use and do nothing on a nil Recorder.
type Recorder struct {
	registry      *prometheus.Registry
	queues        queues
	maxPartitions int
	stage         [stages]prometheus.Observer
	ok            prometheus.Counter            // puts that were answered OK
	refused       map[string]prometheus.Counter // the other answers to puts, by label; never changes
	event         [events]prometheus.Counter
	limit         [refusals]prometheus.Counter
	count         [counts]prometheus.Counter
	timing        [timings]prometheus.Observer
	wait          *waits
	delivery      prometheus.Observer
	delivered     prometheus.Counter
	put           struct{ messages, bytes prometheus.Counter }
}

// DefaultMaxPartitions is the number of partitions with series of their own, unless LimitPartitions changes it.
const DefaultMaxPartitions = 1000

// New returns a Recorder with its own registry. At most maxSeries topics and channels appear by name.
func New(maxSeries int) *Recorder {
	r := &Recorder{registry: prometheus.NewRegistry(), queues: queues{limit: maxSeries}, maxPartitions: DefaultMaxPartitions}
	r.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	counter := func(name string) prometheus.Counter { return r.counters(name).WithLabelValues() }
	r.put.messages, r.put.bytes, r.delivered = counter("messages_put_total"), counter("bytes_put_total"), counter("messages_delivered_total")
	histogram := func(name string, buckets []float64) prometheus.Observer {
		return r.histograms(name, buckets).WithLabelValues()
	}
	r.delivery = histogram("delivery_seconds", buckets)
	r.timing = [timings]prometheus.Observer{
		JournalSync: histogram("journal_sync_seconds", buckets), Checkpoint: histogram("checkpoint_seconds", waitBuckets),
		Election: histogram("election_seconds", buckets),
	}
	r.wait = newWaits(r.histograms("message_wait_seconds", waitBuckets))
	vec := r.histograms("put_stage_seconds", buckets)
	for s, label := range stageLabels {
		r.stage[s] = vec.WithLabelValues(label)
	}
	happened, refused := r.counters("events_total"), r.counters("refused_total")
	for e, label := range eventLabels {
		r.event[e] = happened.WithLabelValues(label)
	}
	for f, label := range refusalLabels {
		r.limit[f] = refused.WithLabelValues(label)
	}
	counted := map[string]*prometheus.CounterVec{}
	for c, series := range countSeries {
		if counted[series[0]] == nil {
			counted[series[0]] = r.counters(series[0])
		}
		r.count[c] = counted[series[0]].WithLabelValues(series[1:]...)
	}
	answers := r.counters("puts_total")
	r.ok = answers.WithLabelValues(outcome.LabelOf(nil))
	r.refused = map[string]prometheus.Counter{outcome.LabelRefused: answers.WithLabelValues(outcome.LabelRefused)}
	for _, row := range outcome.Rows() {
		if row.Err != nil && row.Label != "" {
			r.refused[row.Label] = answers.WithLabelValues(row.Label)
		}
	}
	return r
}

// LimitPartitions sets the number of partitions led here that have series of their own. It is called before the first scrape.
func (r *Recorder) LimitPartitions(n int) {
	if r != nil {
		r.maxPartitions = n
	}
}

func (r *Recorder) histograms(name string, buckets []float64) *prometheus.HistogramVec {
	d := define(name, KindHistogram)
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.FullName(), Help: d.Help, Buckets: buckets}, d.Labels)
	r.registry.MustRegister(h)
	return h
}

func (r *Recorder) counters(name string) *prometheus.CounterVec {
	d := define(name, KindCounter)
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.FullName(), Help: d.Help}, d.Labels)
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

// Answered records the answer to a put of this broker's client, after all retries; nil is OK.
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

// Event counts one event.
func (r *Recorder) Event(e Event) {
	if r != nil {
		r.event[e].Inc()
	}
}

// Refused counts one refusal.
func (r *Recorder) Refused(f Refusal) {
	if r != nil {
		r.limit[f].Inc()
	}
}

// Add increases a count.
func (r *Recorder) Add(c Count, n int) {
	if r != nil {
		r.count[c].Add(float64(n))
	}
}

// Took records the duration of an operation.
func (r *Recorder) Took(t Timing, d time.Duration) {
	if r != nil {
		r.timing[t].Observe(d.Seconds())
	}
}

// The ports of connections of clients.
const (
	PortTCP  = "tcp"
	PortHTTP = "http"
)

// Gauge adds a value that is read at each scrape, such as the length of a bounded queue; f must not block. A later Gauge of the
// same name replaces it, because its owner was restarted.
func (r *Recorder) Gauge(name string, f func() float64) { r.value(define(name, KindGauge), f) }

// Counter is Gauge for a count that never decreases.
func (r *Recorder) Counter(name string, f func() float64) { r.value(define(name, KindCounter), f) }

func (r *Recorder) value(d Definition, f func() float64) {
	r.Source([]string{d.Name}, func(emit Emit) { emit(d.Name, f()) })
}

// Emit reports one series of a Source: its value, and the values of its labels.
type Emit func(name string, value float64, labels ...string)

// Source adds gauges and counters that are read together at each scrape; f must not block for long, and reports each series at
// most once. A later Source of the same names replaces it.
func (r *Recorder) Source(names []string, f func(Emit)) {
	if r == nil {
		return
	}
	s := &source{descs: map[string]described{}, f: f}
	for _, name := range names {
		d := define(name, definitions[name].Kind)
		s.descs[name] = described{prometheus.NewDesc(d.FullName(), d.Help, d.Labels, nil), d.valueType()}
	}
	err := r.registry.Register(s)
	if before, there := errors.AsType[prometheus.AlreadyRegisteredError](err); there {
		r.registry.Unregister(before.ExistingCollector)
		err = r.registry.Register(s)
	}
	if err != nil {
		panic(err) // two different metrics with one name
	}
}

// source is the collector of a Source.
type source struct {
	descs map[string]described
	f     func(Emit)
}

type described struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// Describe implements prometheus.Collector.
func (s *source) Describe(out chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		out <- d.desc
	}
}

// Collect implements prometheus.Collector.
func (s *source) Collect(out chan<- prometheus.Metric) {
	s.f(func(name string, value float64, labels ...string) {
		d := s.descs[name]
		out <- prometheus.MustNewConstMetric(d.desc, d.kind, value, labels...)
	})
}
