// Command fork publishes and consumes with the public Go client of the replicated fork youzan/nsq, in all ways at once, until
// its standard input ends. Then it waits for all acknowledged messages and prints a Report of each way as JSON. Its argument
// lists the HTTP addresses of brokers; with FORK_LOG in the environment it prints the log of the client.
//
// It is a module of its own, so that the product does not depend on that client.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spaolacci/murmur3"
	nsq "github.com/youzan/go-nsq"
)

// Report is what one way of using the client has seen.
type Report struct {
	Way         string
	Acked       int            // messages that were published without an error
	Errors      map[string]int // of publishing, by their text
	Distinct    int            // messages that were delivered
	Deliveries  int            // with repeats
	Missing     []string       // acknowledged, and not delivered
	Differences []string       // deliveries that are not as they were published
}

const (
	channel    = "fork"
	partitions = 3
	publishers = 2                // of each way
	between    = time.Millisecond // two messages of a publisher
	drainLimit = time.Minute
	progress   = 200 * time.Millisecond
)

func main() {
	lookups := strings.Split(os.Args[1], ",")
	quiet := log.New(io.Discard, "", 0)
	if os.Getenv("FORK_LOG") != "" {
		quiet = log.New(os.Stderr, "", log.Lmicroseconds)
	}
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	var ended sync.WaitGroup
	out := json.NewEncoder(os.Stdout)
	runs := make([]*run, len(ways))
	for i, w := range ways {
		runs[i] = newRun(w)
		if err := runs[i].start(lookups, quiet); err != nil {
			fmt.Fprintln(os.Stderr, "fork:", w.name+":", err)
			os.Exit(1)
		}
		for number := range publishers {
			ended.Add(1)
			go func() {
				defer ended.Done()
				runs[i].publish(number, stop)
			}()
		}
	}
	for stopped := false; !stopped; {
		select {
		case <-stop:
			stopped = true
		case <-time.After(progress):
		}
		counts := map[string]int{}
		for _, r := range runs {
			counts[r.way.name] = r.confirmed()
		}
		_ = out.Encode(counts)
	}
	ended.Wait()
	reports := make([]Report, len(runs))
	for i, r := range runs {
		reports[i] = r.finish()
	}
	_ = out.Encode(reports)
}

// way is one way of using the client; its name is that of its topic, which has three partitions.
type way struct {
	name      string
	configure func(*nsq.Config)
	publish   func(*nsq.TopicProducerMgr, message) (receipt, error)
	consumers []int // the partition of each consumer, -1: all
	// differs compares a delivery with its message: its text says what is different.
	differs func(*nsq.Message, message) string
}

// message is a message of a publisher: its body is the JSON of it.
type message struct {
	Publisher, Number int
	Text              string `json:",omitempty"`
}

func (m message) body() []byte {
	b, _ := json.Marshal(m)
	return b
}

func (m message) id() string     { return fmt.Sprintf("%d/%d", m.Publisher, m.Number) }
func (m message) trace() uint64  { return uint64(m.Publisher+1)<<32 | uint64(m.Number) }
func (m message) partition() int { return m.Number % partitions }
func (m message) header() string { return fmt.Sprintf("%d of %d", m.Number, m.Publisher) }
func (m message) ext() *nsq.MsgExt {
	return &nsq.MsgExt{Custom: map[string]any{"which": m.header(), "number": m.Number}}
}
func (m message) key() []byte { return fmt.Appendf(nil, "key %d", m.Publisher) }

// receipt is the answer to a traced message.
type receipt struct {
	id     nsq.NewMessageID
	offset uint64
	size   uint32
}

var ways = []way{
	{
		name:      "plain",
		consumers: []int{-1},
		publish: func(p *nsq.TopicProducerMgr, m message) (receipt, error) {
			if m.Number%2 == 0 {
				return receipt{}, p.Publish("plain", m.body())
			}
			return receipt{}, p.MultiPublish("plain", [][]byte{m.body()})
		},
	},
	{
		name:      "trace",
		configure: func(c *nsq.Config) { c.EnableTrace = true },
		consumers: []int{-1},
		publish: func(p *nsq.TopicProducerMgr, m message) (r receipt, err error) {
			if m.Number%2 == 0 {
				r.id, r.offset, r.size, err = p.PublishAndTrace("trace", m.trace(), m.body())
			} else {
				r.id, r.offset, r.size, err = p.MultiPublishAndTrace("trace", []uint64{m.trace()}, [][]byte{m.body()})
			}
			return r, err
		},
		differs: func(d *nsq.Message, m message) string {
			ext, err := d.GetJsonExt()
			if err != nil {
				return err.Error()
			}
			if ext.TraceID != m.trace() {
				return fmt.Sprintf("trace id %d in place of %d", ext.TraceID, m.trace())
			}
			if int(d.RawSize) != len(m.body()) {
				return fmt.Sprintf("size %d in place of %d", d.RawSize, len(m.body()))
			}
			return ""
		},
	},
	{
		name:      "ordered",
		configure: func(c *nsq.Config) { c.EnableTrace, c.EnableOrdered, c.Hasher = true, true, murmur3.New32() },
		consumers: []int{-1},
		publish: func(p *nsq.TopicProducerMgr, m message) (r receipt, err error) {
			r.id, r.offset, r.size, err = p.PublishOrdered("ordered", m.key(), m.body())
			return r, err
		},
	},
	{
		name: "headers",
		configure: func(c *nsq.Config) {
			c.TopicsForCompress, c.MessageSizeForCompress, c.ClientCompressDecodec = []string{"headers"}, 500, "lz4"
		},
		consumers: []int{-1},
		publish: func(p *nsq.TopicProducerMgr, m message) (receipt, error) {
			ext := m.ext()
			var err error
			switch m.Number % 3 {
			case 0:
				_, _, _, err = p.PublishWithJsonExt("headers", m.body(), ext)
			case 1:
				ext.TraceID = m.trace()
				_, _, _, err = p.PublishWithJsonExt("headers", m.body(), ext)
			case 2:
				err = p.MultiPublishWithJsonExt("headers", [][]byte{m.body()}, []*nsq.MsgExt{ext})
			}
			return receipt{}, err
		},
		differs: func(d *nsq.Message, m message) string {
			ext, err := d.GetJsonExt()
			if err != nil {
				return err.Error()
			}
			wantTrace := uint64(0)
			if m.Number%3 == 1 {
				wantTrace = m.trace()
			}
			if ext.Custom["which"] != m.header() || ext.Custom["number"] != float64(m.Number) || ext.TraceID != wantTrace {
				return fmt.Sprintf("header %s", d.ExtBytes)
			}
			return ""
		},
	},
	{
		name:      "parts",
		consumers: []int{0, 1, 2},
		publish: func(p *nsq.TopicProducerMgr, m message) (receipt, error) {
			if m.Number%2 == 0 {
				return receipt{}, p.PublishWithPartitionId("parts", m.partition(), m.body())
			}
			_, _, _, err := p.PublishWithJsonExtAndPartitionId("parts", m.partition(), m.body(), m.ext())
			return receipt{}, err
		},
		differs: func(d *nsq.Message, m message) string {
			if d.Partition != fmt.Sprint(m.partition()) {
				return fmt.Sprintf("partition %s in place of %d", d.Partition, m.partition())
			}
			return ""
		},
	},
}
