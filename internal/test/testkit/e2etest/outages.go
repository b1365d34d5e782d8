package e2etest

import (
	"sync"
	"time"
)

// Reconnect is how long after a broker is back a producer may still report a
// connection that broke when it went: go-nsq learns of it on a goroutine of its own.
const Reconnect = time.Second

// outage is a time in which clients of one broker may see errors.
type outage struct {
	broker   string
	from, to time.Time // to is zero while it lasts
}

// Outages are those of one test. Written by the test, read by the producers.
type Outages struct {
	mu  sync.Mutex
	all []outage
}

// Begin notes that a broker is down from now on.
func (o *Outages) Begin(broker string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, outage{broker: broker, from: time.Now()})
}

// End notes that a broker is up again.
func (o *Outages) End(broker string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.all {
		if o.all[i].broker == broker && o.all[i].to.IsZero() {
			o.all[i].to = time.Now()
		}
	}
}

// excuse reports whether a broker was down at some time of an attempt.
func (o *Outages) excuse(broker string, from, to time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, x := range o.all {
		if x.broker == broker && !to.Before(x.from) && (x.to.IsZero() || !from.After(x.to.Add(Reconnect))) {
			return true
		}
	}
	return false
}

// IsDown reports whether a broker is down now.
func (o *Outages) IsDown(broker string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, x := range o.all {
		if x.broker == broker && x.to.IsZero() {
			return true
		}
	}
	return false
}
