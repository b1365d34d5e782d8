package coordinator

import (
	"sync"
	"time"
)

// watchDelay measures how long a change of this broker takes to come back by the watch of the
// metadata: everything that a broker has of the others is as old.
type watchDelay struct {
	mu       sync.Mutex
	seen     int64     // the newest revision that the watch has brought
	awaited  int64     // the oldest own change that it has not; 0: none
	since    time.Time // when the store had made it
	measured time.Duration
}

// wrote notes an own change that the store has made.
func (d *watchDelay) wrote(revision int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case revision <= d.seen:
		d.measured = 0 // the watch was faster than the answer
	case d.awaited == 0:
		d.awaited, d.since = revision, time.Now()
	}
}

// came notes a change of the watch.
func (d *watchDelay) came(revision int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen = max(d.seen, revision)
	if d.awaited != 0 && d.awaited <= d.seen {
		d.measured, d.awaited = time.Since(d.since), 0
	}
}

// delay is that of the last own change, or for how long one has been awaited.
func (d *watchDelay) delay() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.awaited != 0 {
		return time.Since(d.since)
	}
	return d.measured
}
