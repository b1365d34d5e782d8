package peertls

import (
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

const (
	// linesPerSecond bounds what a flood writes to the log.
	linesPerSecond = 5
	// shownAgain is the time after which the same reason is logged again.
	shownAgain = 30 * time.Second
	// maxReasons bounds the reasons that are remembered.
	maxReasons = 256
)

// Refusals logs why connections were refused.
type Refusals struct {
	log logrus.FieldLogger
	mu  struct {
		sync.Mutex
		second  time.Time // when the current second began
		lines   int       // in it
		omitted int
		shown   map[string]time.Time
		timer   *time.Timer // runs while omitted > 0
		closed  bool
	}
}

// NewRefusals returns a log without lines.
func NewRefusals(log logrus.FieldLogger) *Refusals {
	r := &Refusals{log: log}
	r.mu.shown = map[string]time.Time{}
	return r
}

// Warn logs a refusal. It only counts a reason that was logged recently, and a line beyond five in a second.
func (r *Refusals) Warn(reason string, fields logrus.Fields, text string) {
	if r.due(reason) {
		r.log.WithFields(fields).Warn(text)
	}
}

func (r *Refusals) due(reason string) bool {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.closed {
		return false
	}
	if at, again := r.mu.shown[reason]; again && now.Sub(at) < shownAgain || !r.allowsLocked(now) {
		if r.mu.omitted++; r.mu.timer == nil {
			r.mu.timer = time.AfterFunc(shownAgain/3, r.report)
		}
		return false
	}
	if len(r.mu.shown) >= maxReasons {
		clear(r.mu.shown)
	}
	r.mu.shown[reason] = now
	return true
}

func (r *Refusals) allowsLocked(now time.Time) bool {
	if now.Sub(r.mu.second) >= time.Second {
		r.mu.second, r.mu.lines = now, 0
	}
	r.mu.lines++
	return r.mu.lines <= linesPerSecond
}

// report logs how many refusals were omitted.
func (r *Refusals) report() {
	r.mu.Lock()
	omitted := r.mu.omitted
	r.mu.omitted, r.mu.timer = 0, nil
	closed := r.mu.closed
	r.mu.Unlock()
	if omitted > 0 && !closed {
		r.log.WithField("omitted", omitted).Warn("further connections of other brokers, or of strangers at their ports, were refused")
	}
}

// Close logs the number of omitted refusals, and nothing afterwards.
func (r *Refusals) Close() {
	r.report()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.closed = true
	if r.mu.timer != nil {
		r.mu.timer.Stop()
	}
}
