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
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	workTopic   = "work"
	workChannel = "jobs"
	workTimeout = 3 * time.Second // of a message
	workEvery   = 50 * time.Millisecond
	workHosts   = 3 // in addition to the one with several workers
	perWorkHost = 3 // workers of the first host
)

// handed is one delivery to a worker.
type handed struct {
	receipt   string
	attempts  int
	asked, at time.Time // when the worker asked, and when it had the answer
}

// work is a message.
type work struct {
	body   string
	handed []handed
	events []string // what workers had and did
}

func (x *work) note(format string, args ...any) {
	x.events = append(x.events, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// story is what workers had and did.
func (x *work) story(w *workers) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(x.events, "\n")
}

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
	work    map[string]*work // by id
	bodies  map[string]bool  // acknowledged
	done    map[string]bool
	faults  []string
}

// startWorkers starts workers, and a producer for them.
func startWorkers(c *cluster, seed uint64) *workers {
	w := &workers{c: c, quit: make(chan struct{}), work: map[string]*work{}, bodies: map[string]bool{}, done: map[string]bool{}}
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
		body := fmt.Sprintf("work-%d", n)
		for try := n; ; try++ {
			b := w.c.brokers[try%len(w.c.brokers)]
			if a := overHTTP(client, "http://"+b.http()+"/pub?topic="+workTopic, "", body); a.Answer == 1 {
				break
			}
			if w.ending() {
				return
			}
			pause(pollEvery)
		}
		w.put.Add(1)
		w.mu.Lock()
		w.bodies[body] = true
		w.mu.Unlock()
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
		asked := time.Now()
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
			h := handed{m.Receipt, m.Attempts, asked, time.Now()}
			w.mu.Lock()
			x := w.work[m.ID]
			if x == nil {
				x = &work{body: m.Body}
				w.work[m.ID] = x
			}
			x.handed = append(x.handed, h)
			x.note("%s from %s, attempt %d", m.Receipt, b.name, m.Attempts)
			w.mu.Unlock()
			w.handle(client, random, m.ID, m.Body, x, h)
		}
		if err != nil {
			pause(pollEvery)
		}
	}
}

// handle answers a delivery in one of the ways of a worker.
func (w *workers) handle(client *http.Client, random *rand.Rand, id, body string, x *work, h handed) {
	late := func() bool { // another worker has the message
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, other := range x.handed {
			if other.receipt != h.receipt && other.attempts >= h.attempts && other.asked.After(h.at) {
				return true
			}
		}
		return false
	}
	verbs := []string{"finish", "requeue", "touch"}
	settle := func(verb string) (accepted bool) {
		over := late()
		status := w.settle(client, random, verb, h.receipt, x)
		accepted = status == http.StatusOK
		if over {
			w.stale.Add(1)
			if accepted {
				w.fault("%s of %s by %s is accepted, but its delivery is over:\n%s", verb, id, h.receipt, x.story(w))
			}
		}
		// A finish that the broker had to repeat after a change of leader may be refused, and its message is finished
		// (coordinator/gateway/receipts.go).
		if verb == "finish" && (accepted || status == 0 || status >= 500 || status == http.StatusConflict && !over) {
			w.settled.Add(1)
			w.mu.Lock()
			w.done[body] = true
			w.mu.Unlock()
		}
		return accepted
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

// settle asks any broker to settle a delivery; 0: it does not answer.
func (w *workers) settle(client *http.Client, random *rand.Rand, verb, receipt string, x *work) (status int) {
	b := w.c.brokers[random.IntN(len(w.c.brokers))]
	q := url.Values{"topic": {workTopic}, "channel": {workChannel}, "receipt": {receipt}}
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, "http://"+b.http()+"/v1/"+verb+"?"+q.Encode(), nil)
	if err != nil {
		panic(err) // the address is ours
	}
	resp, err := client.Do(r)
	var text []byte
	if err == nil {
		status = resp.StatusCode
		text, _ = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	x.note("%s of %s at %s: %d %s %v", verb, receipt, b.name, status, text, err)
	return status
}

func (w *workers) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// judge: no receipt was accepted after its delivery, and no message left the channel without a worker's finish.
func (w *workers) judge(t *testing.T) {
	took, drained := within(onceDrain, func() bool { n, known := w.c.leftOf(workTopic, workChannel); return known && n == 0 })
	if !drained {
		t.Errorf("%s is not drained after %s", workTopic, took)
	}
	if len(w.faults) > 0 {
		t.Errorf("%d receipts: %s", len(w.faults), strings.Join(w.faults[:min(len(w.faults), 10)], "\n"))
	}
	lost := 0
	for body := range w.bodies {
		if !w.done[body] {
			lost++
			t.Errorf("%s left the channel, but no worker has finished it", body)
			for id, x := range w.work {
				if x.body == body {
					t.Logf("%s:\n%s", id, strings.Join(x.events, "\n"))
				}
			}
		}
	}
}

// String is the counts.
func (w *workers) String() string {
	return fmt.Sprintf("workers: %d messages, %d settled, %d receipts tried that were over, %d of them accepted", w.put.Load(), w.settled.Load(), w.stale.Load(), len(w.faults))
}
