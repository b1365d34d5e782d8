package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxWaits is the number of channels with their own histogram, which is about 25 series each.
const maxWaits = 200

type waits struct {
	vec *prometheus.HistogramVec
	mu  sync.Mutex
	of  map[[2]string]*Wait
}

// Wait is the histogram of one channel. A nil Wait records nothing.
type Wait struct{ to prometheus.Observer }

// Wait returns the histogram of a channel: its own for the first channels, and one for all others.
func (r *Recorder) Wait(topic, channel string) *Wait {
	if r == nil {
		return nil
	}
	w := r.wait
	w.mu.Lock()
	defer w.mu.Unlock()
	name := [2]string{topic, channel}
	if w.of[name] == nil && len(w.of) > maxWaits {
		name = [2]string{other, other}
	}
	if w.of[name] == nil {
		w.of[name] = &Wait{w.vec.WithLabelValues(name[0], name[1])}
	}
	return w.of[name]
}

// Waited records the time between a put and the first delivery of its message.
func (w *Wait) Waited(d time.Duration) {
	if w != nil {
		w.to.Observe(max(d, 0).Seconds()) // clocks of brokers differ
	}
}
