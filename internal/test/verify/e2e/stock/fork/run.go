package main

import (
	"encoding/json"
	"fmt"
	"log"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	nsq "github.com/youzan/go-nsq"
)

// run is one way at work.
type run struct {
	way       way
	producers *nsq.TopicProducerMgr
	consumers []*nsq.Consumer
	mu        sync.Mutex
	report    Report
	acked     map[string]receipt
	delivered map[string][]receipt
	newest    map[int]int // by publisher, of the ordered way
}

func newRun(w way) *run {
	return &run{
		way: w, report: Report{Way: w.name, Errors: map[string]int{}},
		acked: map[string]receipt{}, delivered: map[string][]receipt{}, newest: map[int]int{},
	}
}

func (r *run) start(lookups []string, out *log.Logger) (err error) {
	config := nsq.NewConfig()
	config.LookupdPollInterval = 5 * time.Second
	config.MaxAttempts = 0
	if r.way.configure != nil {
		r.way.configure(config)
	}
	if r.producers, err = nsq.NewTopicProducerMgr([]string{r.way.name}, config); err != nil {
		return err
	}
	r.producers.SetLogger(out, nsq.LogLevelInfo)
	r.producers.AddLookupdNodes(lookups)
	for _, partition := range r.way.consumers {
		c, err := nsq.NewPartitionConsumer(r.way.name, partition, channel, config)
		if err != nil {
			return err
		}
		c.SetLogger(out, nsq.LogLevelInfo)
		c.AddConcurrentHandlers(nsq.HandlerFunc(r.handle), 4)
		if err := c.ConnectToNSQLookupds(lookups); err != nil {
			return err
		}
		r.consumers = append(r.consumers, c)
	}
	return nil
}

var digits = regexp.MustCompile(`\d+`)

func (r *run) publish(number int, stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		case <-time.After(between):
		}
		m := message{Publisher: number, Number: n}
		if n%10 == 0 {
			m.Text = strings.Repeat("text ", 200)
		}
		got, err := r.way.publish(r.producers, m)
		r.mu.Lock()
		if err == nil {
			r.acked[m.id()] = got
		} else {
			r.report.Errors[digits.ReplaceAllString(err.Error(), "N")]++
		}
		r.mu.Unlock()
	}
}

func (r *run) confirmed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.acked)
}

// handle finishes a message, or requeues it at the first attempt of each fiftieth.
func (r *run) handle(d *nsq.Message) error {
	var m message
	err := json.Unmarshal(d.Body, &m)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Deliveries++
	difference := ""
	switch {
	case err != nil:
		difference = fmt.Sprintf("body %q: %v", d.Body[:min(len(d.Body), 40)], err)
	case r.way.differs != nil:
		difference = r.way.differs(d, m)
	}
	seen, again := r.delivered[m.id()]
	if newest, known := r.newest[m.Publisher]; r.way.name == "ordered" && !again {
		if known && m.Number < newest {
			difference = fmt.Sprintf("for the first time after %d", newest)
		}
		r.newest[m.Publisher] = max(newest, m.Number)
	}
	if difference != "" {
		r.report.Differences = append(r.report.Differences, m.id()+": "+difference)
	}
	var id uint64
	_, _ = fmt.Sscanf(string(d.ID[:]), "%x", &id)
	r.delivered[m.id()] = append(seen, receipt{nsq.NewMessageID(id), d.Offset, d.RawSize})
	if m.Number%50 == 7 && !again {
		d.RequeueWithoutBackoff(0)
	}
	return nil
}

// finish waits for all acknowledged messages and ends the clients.
func (r *run) finish() Report {
	for deadline := time.Now().Add(drainLimit); len(r.missing()) > 0 && time.Now().Before(deadline); time.Sleep(progress) {
	}
	for _, c := range r.consumers {
		c.Stop()
		<-c.StopChan
	}
	r.producers.Stop()
	r.report.Missing = r.missing()
	r.report.Acked, r.report.Distinct = len(r.acked), len(r.delivered)
	for id, got := range r.acked {
		// A message that was sent again may be stored twice; one of its deliveries is that of the receipt.
		if all := r.delivered[id]; got != (receipt{}) && len(all) > 0 && !slices.Contains(all, got) {
			r.report.Differences = append(r.report.Differences, fmt.Sprintf("%s: receipt %v, deliveries %v", id, got, all))
		}
	}
	return r.report
}

func (r *run) missing() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.acked {
		if _, ok := r.delivered[id]; !ok {
			all = append(all, id)
		}
	}
	return all
}
