package e2e

import (
	"sync"
	"time"
)

// reconnect is how long after a broker is back a producer may still report a
// connection that broke when it went: go-nsq learns of it on a goroutine of its own.
const reconnect = time.Second

// outage is a time in which clients of one broker may see errors.
type outage struct {
	broker   string
	from, to time.Time // to is zero while it lasts
}

// outages are those of one test. Written by the test, read by the producers.
type outages struct {
	mu  sync.Mutex
	all []outage
}

func (o *outages) begin(broker string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, outage{broker: broker, from: time.Now()})
}

func (o *outages) end(broker string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.all {
		if o.all[i].broker == broker && o.all[i].to.IsZero() {
			o.all[i].to = time.Now()
		}
	}
}

// excuse reports whether a broker was down at some time of an attempt.
func (o *outages) excuse(broker string, from, to time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, x := range o.all {
		if x.broker == broker && !to.Before(x.from) && (x.to.IsZero() || !from.After(x.to.Add(reconnect))) {
			return true
		}
	}
	return false
}

func (o *outages) isDown(broker string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, x := range o.all {
		if x.broker == broker && x.to.IsZero() {
			return true
		}
	}
	return false
}
