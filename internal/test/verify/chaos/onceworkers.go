package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge/record"
)

const (
	workTopic   = "work"
	workChannel = "jobs"
	workTimeout = 3 * time.Second // of a message
	workEvery   = 50 * time.Millisecond
	workHosts   = 3 // in addition to the one with several workers
	perWorkHost = 3 // workers of the first host
)

// workers consume a channel by HTTP: some of one host without a name, so that they share a session at each broker, others of
// hosts of their own. A receipt is refused once another worker has had the message again.
type workers struct {
	c       *cluster
	quit    chan struct{}
	wg      sync.WaitGroup
	put     atomic.Int64
	settled atomic.Int64
	stale   atomic.Int64 // receipts that had to be refused
	mu      sync.Mutex
	puts    []*judge.Put
	handed  []*judge.Delivery
	byID    map[string][]*judge.Delivery
}

// startWorkers starts workers, and a producer for them.
func startWorkers(c *cluster, seed uint64) *workers {
	w := &workers{c: c, quit: make(chan struct{}), byID: map[string][]*judge.Delivery{}}
	w.wg.Go(w.produce)
	for host := range workHosts + 1 {
		address := fmt.Sprintf("10.77.0.%d", 200+host)
		c.net.script("addr add " + address + "/24 dev lockstep")
		n := 1
		if host == 0 {
			n = perWorkHost
		}
		for i := range n {
			random := rand.New(rand.NewPCG(seed, uint64(1000+10*host+i)))
			dialer := net.Dialer{Timeout: time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
			client := &http.Client{Timeout: onceAnswers, Transport: &http.Transport{DialContext: dialer.DialContext}}
			w.wg.Go(func() { w.consume(client, random) }) // ends after stop
		}
	}
	return w
}

// stop ends the producer, lets the workers do what is left, and ends them.
func (w *workers) stop() {
	close(w.quit)
	w.wg.Wait()
}

func (w *workers) ending() bool {
	select {
	case <-w.quit:
		return true
	default:
		return false
	}
}

func (w *workers) produce() {
	client := &http.Client{Timeout: onceAnswers}
	defer client.CloseIdleConnections()
	for n := 0; !w.ending(); n++ {
		p := &judge.Put{Bodies: []string{fmt.Sprintf("work-%d", n)}}
		w.mu.Lock()
		w.puts = append(w.puts, p)
		w.mu.Unlock()
		for try := n; ; try++ {
			b := w.c.brokers[try%len(w.c.brokers)]
			a := overHTTP(client, "http://"+b.http()+"/pub?topic="+workTopic, "", p.Bodies[0])
			p.Attempts = append(p.Attempts, judge.Attempt{Sent: a.sent, Answered: record.Now(), Answer: a.Answer, Broker: b.name, Why: a.why})
			if a.Answer == judge.OK {
				break
			}
			if w.ending() {
				return
			}
			pause(pollEvery)
		}
		w.put.Add(1)
		pause(workEvery)
	}
}

// consume is one worker. It ends when it has found nothing for a while after the producer has ended.
func (w *workers) consume(client *http.Client, random *rand.Rand) {
	defer client.CloseIdleConnections()
	at := random.IntN(len(w.c.brokers))
	for idle := time.Now(); !w.ending() || time.Since(idle) < 3*workTimeout; {
		b := w.c.brokers[at%len(w.c.brokers)]
		q := url.Values{"topic": {workTopic}, "channel": {workChannel}, "max": {"5"}, "wait": {"1s"}, "msg_timeout": {workTimeout.String()}}
		asked := record.Now()
		resp, err := client.Post("http://"+b.http()+"/v1/consume?"+q.Encode(), "", nil)
		var answer struct {
			Messages []struct {
				ID, Receipt, Body string
				Attempts          int
			}
		}
		if err == nil {
			err = json.NewDecoder(resp.Body).Decode(&answer)
			_ = resp.Body.Close()
		}
		if err != nil || random.IntN(10) == 0 {
			at++
		}
		for _, m := range answer.Messages {
			idle = time.Now()
			d := &judge.Delivery{Channel: workChannel, Consumer: b.name, ID: m.ID, Body: m.Body, Attempts: m.Attempts, Receipt: m.Receipt, Asked: asked, At: record.Now()}
			w.mu.Lock()
			w.handed, w.byID[m.ID] = append(w.handed, d), append(w.byID[m.ID], d)
			w.mu.Unlock()
			w.handle(client, random, d)
		}
		if err != nil {
			pause(pollEvery)
		}
	}
}

// over reports whether another worker has had the message again.
func (w *workers) over(d *judge.Delivery) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.byID[d.ID], func(other *judge.Delivery) bool {
		return other.Receipt != d.Receipt && other.Attempts >= d.Attempts && other.Asked > d.At
	})
}

// handle answers a delivery in one of the ways of a worker.
func (w *workers) handle(client *http.Client, random *rand.Rand, d *judge.Delivery) {
	verbs := []string{"finish", "requeue", "touch"}
	settle := func(verb string) (accepted bool) {
		over := w.over(d)
		if over {
			w.stale.Add(1)
		}
		x := w.settle(client, random, verb, d.Receipt, over)
		w.mu.Lock()
		defer w.mu.Unlock()
		d.Settled = append(d.Settled, x)
		return x.Accepted
	}
	switch n := random.IntN(20); {
	case n < 12 || w.ending():
		settle("finish")
	case n < 15: // it asks again, once another worker may have the message
		if settle("requeue") {
			pause(time.Duration(random.IntN(500)) * time.Millisecond)
			settle(verbs[random.IntN(3)])
		}
	case n < 17:
		settle("touch")
		settle("finish")
	case n < 18: // it takes too long
		pause(workTimeout + workTimeout/2)
		settle(verbs[random.IntN(3)])
	default: // it is never answered
	}
}

// settle asks any broker to settle a delivery. A finish that the broker had to repeat after a change of leader may be refused with a
// conflict, and its message is finished (coordinator/gateway/receipts.go), unless its delivery was over.
func (w *workers) settle(client *http.Client, random *rand.Rand, verb, receipt string, over bool) judge.Settlement {
	b := w.c.brokers[random.IntN(len(w.c.brokers))]
	q := url.Values{"topic": {workTopic}, "channel": {workChannel}, "receipt": {receipt}}
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+b.http()+"/v1/"+verb+"?"+q.Encode(), nil)
	if err != nil {
		panic(err) // the address is ours
	}
	status, x := 0, judge.Settlement{Verb: verb, At: record.Now(), Broker: b.name}
	resp, err := client.Do(r)
	if err == nil {
		status = resp.StatusCode
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	x.Accepted, x.Unknown = status == http.StatusOK, status == 0 || status >= 500 || status == http.StatusConflict && !over
	if verb == "finish" && (x.Accepted || x.Unknown) {
		w.settled.Add(1)
	}
	return x
}

// judge judges receipts, and that no message has left the channel without a worker's finish.
func (w *workers) judge(t *testing.T) {
	took, drained := within(onceDrain, func() bool { n, known := w.c.leftOf(workTopic, workChannel); return known && n == 0 })
	if !drained {
		t.Errorf("%s is not drained after %s", workTopic, took)
	}
	h := record.History(workTopic, nil, w.handed, workChannel)
	h.Tolerance.Leaders = true
	for _, p := range w.puts {
		if len(p.Attempts) > 0 {
			h.Puts = append(h.Puts, p)
		}
	}
	report := judge.Judge(h)
	t.Log(report)
	for _, v := range report.Violations {
		t.Error(v)
	}
}

// String is the counts.
func (w *workers) String() string {
	return fmt.Sprintf("workers: %d messages, %d settled, %d receipts tried that were over", w.put.Load(), w.settled.Load(), w.stale.Load())
}
