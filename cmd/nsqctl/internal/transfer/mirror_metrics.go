package transfer

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// The metrics of a mirror; docs/guide/mirror.md lists them.
var (
	mirrorLabels      = []string{"topic", "partition"}
	mirrorLagMessages = prometheus.NewDesc("lockstep_mirror_lag_messages", "Messages of the source that are not in the target.", mirrorLabels, nil)
	mirrorLagSeconds  = prometheus.NewDesc("lockstep_mirror_lag_seconds", "Age of the first message that is not in the target, or the time since the source last answered.", mirrorLabels, nil)
	mirrorMessages    = prometheus.NewDesc("lockstep_mirror_messages_total", "Messages that this process copied.", mirrorLabels, nil)
	mirrorBytes       = prometheus.NewDesc("lockstep_mirror_bytes_total", "Bytes of bodies and headers that this process copied.", mirrorLabels, nil)
	mirrorRepeated    = prometheus.NewDesc("lockstep_mirror_repeated_puts_total", "Puts that were repeated because their fate was unknown. The target recognises them within its dedupe window.", mirrorLabels, nil)
	mirrorMissed      = prometheus.NewDesc("lockstep_mirror_missed_messages_total", "Messages that retention removed from the source before they were copied.", mirrorLabels, nil)
	mirrorRewinds     = prometheus.NewDesc("lockstep_mirror_rewinds_total", "Times that the source or the target had lost messages that were copied.", mirrorLabels, nil)
	mirrorSkipped     = prometheus.NewDesc("lockstep_mirror_returned_messages_total", "Messages that came from the target and were not copied back.", mirrorLabels, nil)
)

// mirrorCollector implements prometheus.Collector.
type mirrorCollector struct{ o *mirroring }

// Describe implements prometheus.Collector.
func (c mirrorCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{mirrorLagMessages, mirrorLagSeconds, mirrorMessages, mirrorBytes, mirrorRepeated, mirrorMissed, mirrorRewinds, mirrorSkipped} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c mirrorCollector) Collect(out chan<- prometheus.Metric) {
	c.o.linksMu.Lock()
	links := slices.Collect(maps.Values(c.o.links))
	c.o.linksMu.Unlock()
	slices.SortFunc(links, func(x, y *mirrorLink) int {
		return cmp.Or(cmp.Compare(x.from.topic, y.from.topic), cmp.Compare(x.from.partition, y.from.partition))
	})
	now := time.Now()
	for _, l := range links {
		send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
			out <- prometheus.MustNewConstMetric(d, kind, v, l.from.topic, strconv.Itoa(l.from.partition))
		}
		send(mirrorLagMessages, prometheus.GaugeValue, float64(l.lag()))
		send(mirrorLagSeconds, prometheus.GaugeValue, l.age(now).Seconds())
		send(mirrorMessages, prometheus.CounterValue, float64(l.copied.Load()))
		send(mirrorBytes, prometheus.CounterValue, float64(l.bytes.Load()))
		send(mirrorRepeated, prometheus.CounterValue, float64(l.p.view().doubts))
		send(mirrorMissed, prometheus.CounterValue, float64(l.missed.Load()))
		send(mirrorRewinds, prometheus.CounterValue, float64(l.rewinds.Load()))
		send(mirrorSkipped, prometheus.CounterValue, float64(l.skipped.Load()))
	}
}

// metricsHandler serves the metrics of the mirror.
func (o *mirroring) metricsHandler() http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(mirrorCollector{o})
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}
