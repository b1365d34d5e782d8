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

// Count is a number that Add increases. countSeries maps it to its metric.
type Count uint8

// The counts.
const (
	PutsForwarded   Count = iota // puts sent to the broker that leads their partition
	MessagesRelayed              // messages received from other brokers for consumers of this one
	PutsRolledBack               // puts that this broker, as their leader, rolled back
	PutsInDoubt                  // puts that this broker, as their leader, left in doubt
	SpansSent                    // spans that the trace collector accepted
	SpansDropped                 // other spans
	IdleTopics                   // topics moved to the trash because nothing used them
	IdleChannels                 // channels deleted because nothing used them

	// The rare events of a partition or a broker.
	EventElected     // this broker became a partition's leader
	EventSteppedDown // this broker is no longer a partition's leader
	EventRemoved     // a replica left the in-sync set
	EventJoined      // a replica joined the in-sync set again
	EventRollback    // uncommitted puts were rolled back under a new epoch
	EventTruncated   // a follower truncated a suffix at its leader's request
	EventRestarted   // a replica's log was emptied, to begin again at its leader's first retained offset
	EventRegistered  // this broker registered with the metadata store
	EventLost        // this broker lost its registration
	EventAlarm       // a replica refused a message that violates the protocol
	EventRepeated    // a put was stored before: a gateway retried it
	EventRepaired    // a damaged range was repaired from another replica's copy

	// The limits at the ports for clients that have refused, delayed or cut off a client: docs/reference/limits.md.
	RefusedTCPConnections  // too many clients at the TCP port
	RefusedTCPAddress      // too many clients of one address at the TCP port
	RefusedTCPUser         // too many clients of one user at the TCP port
	RefusedTCPMagic        // the protocol magic did not arrive in time
	RefusedTCPLogin        // IDENTIFY and AUTH were not complete in time
	RefusedTCPHandshake    // a TLS handshake at the TCP port failed or took too long
	RefusedTCPSize         // the body of IDENTIFY or AUTH was too large
	RefusedTCPMemory       // no memory for a body became available in time
	RefusedTCPExpansion    // compressed input became too large
	RefusedTCPSlow         // a large body arrived too slowly
	RefusedTCPWaiting      // a connection at the TCP port was displaced before its login
	RefusedHTTPConnections // too many connections at the HTTP ports
	RefusedHTTPAddress     // too many connections of one address at the HTTP ports
	RefusedHTTPMemory      // no memory for a body became available in time
	RefusedHTTPSlow        // a large body arrived too slowly
	RefusedHTTPWaiting     // a connection at the HTTP ports was displaced before its login

	messagesPut
	bytesPut
	delivered
)

// countSeries are the metrics of the counts, in their order: the name, and the values of the label, if it has one.
var countSeries = []struct {
	name   string
	labels []string
}{
	{"puts_forwarded_total", nil}, {"messages_relayed_total", nil}, {"replica_puts_rolled_back_total", nil}, {"replica_puts_in_doubt_total", nil},
	{"trace_spans_sent_total", nil}, {"trace_spans_dropped_total", nil}, {"idle_removed_total", []string{"topic", "channel"}},
	{"events_total", []string{
		"elected", "stepped_down", "isr_removed", "isr_joined", "rollback", "truncated", "restarted", "registered", "registration_lost",
		"alarm", "put_repeated", "mended",
	}},
	{"refused_total", refusals}, {"messages_put_total", nil}, {"bytes_put_total", nil}, {"messages_delivered_total", nil},
}

var refusals = []string{
	"tcp_connections", "tcp_address", "tcp_user", "tcp_magic", "tcp_login", "tcp_handshake", "tcp_size", "tcp_memory", "tcp_expansion", "tcp_slow",
	"tcp_waiting", "http_connections", "http_address", "http_memory", "http_slow", "http_waiting",
}

// Refusals lists the labels of the limits, for the table in docs/reference/limits.md.
func Refusals() []string { return refusals }

// timing is an operation whose duration Took records. timingSeries maps it to its metric.
type timing uint8

// The timings. The first ones are the stages of a put, or of a group of puts.
const (
	StageQueue     timing = iota // waiting for the partition's core loop
	StageWrite                   // sealing and submitting to the journal
	StageSync                    // until the local journal is durable
	StageReplicate               // until all in-sync replicas hold it durably
	StageCommit                  // from the arrival to the answer
	JournalSync                  // one sync of the journal
	Checkpoint                   // one checkpoint of the store
	Election                     // from a candidacy of this broker to its leadership
	delivery                     // from the pull of a burst to the end of its write
)

// timingSeries are the metrics of the timings, in their order.
var timingSeries = []struct {
	name    string
	buckets []float64
	labels  []string
}{
	{"put_stage_seconds", buckets, []string{"queue", "write", "sync", "replicate", "commit"}},
	{"journal_sync_seconds", buckets, nil}, {"checkpoint_seconds", waitBuckets, nil}, {"election_seconds", buckets, nil}, {"delivery_seconds", buckets, nil},
}

// Recorder records events. All methods are safe for concurrent use and do nothing on a nil Recorder.
type Recorder struct {
	registry      *prometheus.Registry
	queues        queues
	maxPartitions int
	ok            prometheus.Counter            // puts that were answered OK
	refused       map[string]prometheus.Counter // the other answers to puts, by label; never changes
	count         []prometheus.Counter          // by Count
	timing        []prometheus.Observer         // by timing
	wait          *waits
}

// DefaultMaxPartitions is the number of partitions that have their own series, unless LimitPartitions changes it.
const DefaultMaxPartitions = 1000

// New returns a Recorder with its own registry. At most maxSeries topics and channels appear by name.
func New(maxSeries int) *Recorder {
	r := &Recorder{registry: prometheus.NewRegistry(), queues: queues{limit: maxSeries}, maxPartitions: DefaultMaxPartitions}
	r.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, m := range countSeries {
		r.count = append(r.count, children(m.labels, r.counters(m.name).WithLabelValues)...)
	}
	for _, m := range timingSeries {
		r.timing = append(r.timing, children(m.labels, r.histograms(m.name, m.buckets).WithLabelValues)...)
	}
	wait := r.histograms("message_wait_seconds", waitBuckets)
	r.wait = &waits{vec: wait, of: map[[2]string]*Wait{{other, other}: {wait.WithLabelValues(other, other)}}}
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

// children are the series of a metric by the values of its label; without a label it is one series.
func children[T any](labels []string, with func(...string) T) (list []T) {
	if labels == nil {
		return []T{with()}
	}
	for _, label := range labels {
		list = append(list, with(label))
	}
	return list
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
	r.Add(messagesPut, messages)
	r.Add(bytesPut, bytes)
}

// Delivered records a burst of messages to one client, and the duration of its write.
func (r *Recorder) Delivered(messages int, took time.Duration) {
	r.Add(delivered, messages)
	r.Took(delivery, took)
}

// Add increases a count.
func (r *Recorder) Add(c Count, n int) {
	if r != nil {
		r.count[c].Add(float64(n))
	}
}

// Took records the duration of an operation.
func (r *Recorder) Took(t timing, d time.Duration) {
	if r != nil {
		r.timing[t].Observe(d.Seconds())
	}
}

// The ports for clients, as values of the label port.
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

type source struct {
	descs map[string]described
	f     func(Emit)
}

type described struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func (s *source) Describe(out chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		out <- d.desc
	}
}

func (s *source) Collect(out chan<- prometheus.Metric) {
	s.f(func(name string, value float64, labels ...string) {
		d := s.descs[name]
		out <- prometheus.MustNewConstMetric(d.desc, d.kind, value, labels...)
	})
}
