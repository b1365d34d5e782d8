// Package record has what clients with sockets write into histories for the judge: times of the process, attempts, deliveries over TCP.
// It judges nothing and keeps nothing.
package record

import (
	"time"

	"github.com/nsqio/go-nsq"

	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// began is the beginning of all histories of this process.
var began = time.Now()

// Now is the time in the histories of this process.
func Now() time.Duration { return time.Since(began) }

// Attempt is one try of a put, sent at a time of Now and answered now.
func Attempt(sent time.Duration, answer judge.Answer) judge.Attempt {
	return judge.Attempt{Sent: sent, Answered: Now(), Answer: answer}
}

// Received is a delivery that arrives now.
func Received(channel string, m *nsq.Message) *judge.Delivery {
	now := Now()
	return &judge.Delivery{Channel: channel, ID: string(m.ID[:]), Body: string(m.Body), Attempts: int(m.Attempts), Asked: now, At: now}
}

// Finished notes that the consumer finishes a delivery now. Over TCP the broker does not answer.
func Finished(d *judge.Delivery) {
	d.Settled = append(d.Settled, judge.Settlement{Verb: "finish", At: Now(), Unknown: true})
}

// History is what the producers of a topic and the consumers of its channels saw, each of which received all of its messages. A new
// leader may deliver again what consumers have finished: AfterFinish of its tolerance is any number.
func History(topic string, puts []*judge.Put, deliveries []*judge.Delivery, channels ...string) *judge.History {
	h := &judge.History{Topic: topic, Puts: puts, Deliveries: deliveries, Tolerance: judge.Tolerance{AfterFinish: judge.AnyNumber}}
	for _, name := range channels {
		h.Channels = append(h.Channels, judge.Channel{Name: name, Whole: true})
	}
	return h
}
