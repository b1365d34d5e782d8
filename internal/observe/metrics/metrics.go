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

// buckets range from 50 µs (a sync that does not reach a disk) to 10 s (the longest put wait),
// about two per octave where the promises are.
var buckets = []float64{
	50e-6, 100e-6, 200e-6, 350e-6, 500e-6, 750e-6, 1e-3, 2e-3, 3.5e-3, 5e-3, 7.5e-3,
	10e-3, 20e-3, 35e-3, 50e-3, 100e-3, 200e-3, 350e-3, 500e-3, 1, 2, 5, 10,
}

// waitBuckets reach from a consumer that waits for messages to one that was disconnected
// for days.
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
	registry   *prometheus.Registry
	queues     *queues
	partitions *partitions
	stage      [stages]prometheus.Observer
	ok         prometheus.Counter            // puts that were answered OK
	refused    map[string]prometheus.Counter // the other answers to puts, by label; never changes
	event      [events]prometheus.Counter
	limit      [refusals]prometheus.Counter
	wait       *waits
	delivery   prometheus.Observer
	delivered  prometheus.Counter
	forwarded  prometheus.Counter
	relayed    prometheus.Counter
	put        struct{ messages, bytes prometheus.Counter }
	replica    struct{ rolledBack, inDoubt prometheus.Counter }
	traced     struct{ sent, dropped prometheus.Counter }
	idle       struct{ topics, channels prometheus.Counter }
	sync       prometheus.Observer
	checkpoint prometheus.Observer
	election   prometheus.Observer
}

// DefaultMaxPartitions is the number of partitions with series of their own, unless
// LimitPartitions changes it.
const DefaultMaxPartitions = 1000

// New returns a Recorder with its own registry. At most maxSeries topics and channels appear
// by name.
func New(maxSeries int) *Recorder {
	r := &Recorder{registry: prometheus.NewRegistry(), queues: newQueues(maxSeries), partitions: newPartitions(DefaultMaxPartitions)}
	r.registry.MustRegister(r.queues, r.partitions, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.registerPuts()
	r.registerRefusals()
	r.wait = newWaits(r.registry)
	r.delivery = r.histogram("delivery_seconds", buckets)
	r.delivered = r.counter("messages_delivered_total")
	r.forwarded = r.counter("puts_forwarded_total")
	r.relayed = r.counter("messages_relayed_total")
	r.sync = r.histogram("journal_sync_seconds", buckets)
	r.checkpoint = r.histogram("checkpoint_seconds", waitBuckets)
	r.election = r.histogram("election_seconds", buckets)
	r.replica.rolledBack = r.counter("replica_puts_rolled_back_total")
	r.replica.inDoubt = r.counter("replica_puts_in_doubt_total")
	r.traced.sent = r.counter("trace_spans_sent_total")
	r.traced.dropped = r.counter("trace_spans_dropped_total")
	removed := r.counters("idle_removed_total")
	r.idle.topics, r.idle.channels = removed.WithLabelValues("topic"), removed.WithLabelValues("channel")
	happened := r.counters("events_total")
	for e := range events {
		r.event[e] = happened.WithLabelValues(e.String())
	}
	return r
}

// LimitPartitions sets the number of partitions led here that have series of their own. It is
// called before the first scrape.
func (r *Recorder) LimitPartitions(n int) {
	if r != nil {
		r.partitions.limit = n
	}
}

func (r *Recorder) registerPuts() {
	d := define("put_stage_seconds", KindHistogram)
	stage := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.FullName(), Help: d.Help, Buckets: buckets}, d.Labels)
	r.registry.MustRegister(stage)
	puts := r.counters("puts_total")
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
	r.put.messages = r.counter("messages_put_total")
	r.put.bytes = r.counter("bytes_put_total")
}

func (r *Recorder) histogram(name string, buckets []float64) prometheus.Histogram {
	d := define(name, KindHistogram)
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: d.FullName(), Help: d.Help, Buckets: buckets})
	r.registry.MustRegister(h)
	return h
}

func (r *Recorder) counter(name string) prometheus.Counter {
	d := define(name, KindCounter)
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: d.FullName(), Help: d.Help})
	r.registry.MustRegister(c)
	return c
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

// Event counts one event.
func (r *Recorder) Event(e Event) {
	if r != nil {
		r.event[e].Inc()
	}
}

// Forwarded records puts that were sent to the broker that leads their partition.
func (r *Recorder) Forwarded(puts int) {
	if r != nil {
		r.forwarded.Add(float64(puts))
	}
}

// Relayed records messages that came from another broker for consumers of this one.
func (r *Recorder) Relayed(messages int) {
	if r != nil {
		r.relayed.Add(float64(messages))
	}
}

// Undone records puts that this broker, as their leader, rolled back or left in doubt.
func (r *Recorder) Undone(rolledBack, inDoubt uint64) {
	if r != nil {
		r.replica.rolledBack.Add(float64(rolledBack))
		r.replica.inDoubt.Add(float64(inDoubt))
	}
}

// Traced records spans that the collector took, and others.
func (r *Recorder) Traced(sent, dropped int) {
	if r != nil {
		r.traced.sent.Add(float64(sent))
		r.traced.dropped.Add(float64(dropped))
	}
}

// IdleTopic records a topic that went into the trash because nothing used it.
func (r *Recorder) IdleTopic() {
	if r != nil {
		r.idle.topics.Inc()
	}
}

// IdleChannel records a channel that was deleted because nothing used it.
func (r *Recorder) IdleChannel() {
	if r != nil {
		r.idle.channels.Inc()
	}
}

// JournalSynced records one sync of the journal.
func (r *Recorder) JournalSynced(took time.Duration) {
	if r != nil {
		r.sync.Observe(took.Seconds())
	}
}

// Checkpointed records one checkpoint of the store.
func (r *Recorder) Checkpointed(took time.Duration) {
	if r != nil {
		r.checkpoint.Observe(took.Seconds())
	}
}

// Elected records the time between a candidacy of this broker and its leadership.
func (r *Recorder) Elected(took time.Duration) {
	if r != nil {
		r.election.Observe(took.Seconds())
	}
}

// The ports of connections of clients.
const (
	PortTCP  = "tcp"
	PortHTTP = "http"
)

// Gauge adds a value that is read at each scrape, such as the length of a bounded queue; f
// must not block. A later Gauge of the same name replaces it, because its owner was
// restarted.
func (r *Recorder) Gauge(name string, f func() float64) {
	r.add([]Definition{define(name, KindGauge)}, func(emit Emit) { emit(name, f()) })
}

// Counter adds a count that is read at each scrape and never decreases. A later Counter of the
// same name replaces it, as with Gauge.
func (r *Recorder) Counter(name string, f func() float64) {
	r.add([]Definition{define(name, KindCounter)}, func(emit Emit) { emit(name, f()) })
}

// Emit reports one series of a Source: its value, and the values of its labels.
type Emit func(name string, value float64, labels ...string)

// Source adds gauges and counters that are read together at each scrape; f must not block for
// long, and reports each series at most once. A later Source of the same names replaces it.
func (r *Recorder) Source(names []string, f func(Emit)) {
	var all []Definition
	for _, name := range names {
		all = append(all, define(name, definitions[name].Kind))
	}
	r.add(all, f)
}

func (r *Recorder) add(all []Definition, f func(Emit)) {
	if r != nil {
		r.replace(newSource(all, f))
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

// source is the collector of a Source.
type source struct {
	descs map[string]described
	f     func(Emit)
}

type described struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func newSource(all []Definition, f func(Emit)) *source {
	s := &source{descs: map[string]described{}, f: f}
	for _, d := range all {
		s.descs[d.Name] = described{d.desc(), d.valueType()}
	}
	return s
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
