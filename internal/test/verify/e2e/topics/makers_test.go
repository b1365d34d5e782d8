package topics

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge/record"
)

// standing is what its client knows of a topic or a channel.
type standing int

const (
	asked standing = iota // no answer yet: it may be there or not
	there                 // its creation was answered, its deletion never asked for
	gone                  // its deletion was answered
)

// subject is one topic of one client. Its channel "kept" is its first.
type subject struct {
	name     string
	topic    standing
	channels map[string]standing
	puts     []*judge.Put
}

// maker is a client that makes topics and channels, publishes and deletes, one
// request after the other, each at some broker.
type maker struct {
	*makers
	random   *rand.Rand
	subjects []*subject
}

// makers are the clients of one test. While look is held for writing none of
// them asks anything, and all that they know may be read.
type makers struct {
	c       *e2etest.Cluster
	client  *http.Client
	look    sync.RWMutex
	all     []*maker
	ended   chan struct{}
	running sync.WaitGroup
	faults  chan string // an answer that cannot be
}

// startMakers starts n clients; they end with stop.
func startMakers(c *e2etest.Cluster, n int, seed uint64) *makers {
	m := &makers{c: c, client: &http.Client{Timeout: e2etest.StartLimit}, ended: make(chan struct{}), faults: make(chan string, 1)}
	for i := range n {
		one := &maker{makers: m, random: rand.New(rand.NewPCG(seed, uint64(i)))}
		m.all = append(m.all, one)
		m.running.Go(func() { // ends with stop
			for n := 0; !m.stopped(); n++ {
				one.round(fmt.Sprintf("topic-%d-%d", i, n))
			}
		})
	}
	return m
}

func (m *makers) stopped() bool {
	select {
	case <-m.ended:
		return true
	default:
		return false
	}
}

// stop ends the clients, and waits for what they have asked.
func (m *makers) stop() {
	close(m.ended)
	m.running.Wait()
	m.client.CloseIdleConnections()
}

// round is the life of one topic; the client keeps some and deletes the oldest.
func (m *maker) round(name string) {
	const kept = 4
	s := &subject{name: name, channels: map[string]standing{}}
	m.look.Lock()
	m.subjects = append(m.subjects, s)
	m.look.Unlock()
	if !m.ask(s, "", there) || !m.ask(s, "kept", there) {
		return
	}
	m.publish(s)
	if m.ask(s, "dropped", there) && m.random.IntN(4) > 0 {
		m.publish(s)
		m.ask(s, "dropped", gone)
	}
	m.publish(s)
	if m.random.IntN(2) == 0 {
		m.ask(s, "", gone)
	}
	for _, old := range m.subjects[:max(0, len(m.subjects)-kept)] {
		if old.topic == there { // a topic of unknown state is not touched until it was looked at
			m.ask(old, "", gone)
		}
	}
}

// ask has a topic, or a channel of it, made or deleted. Without an answer it asks
// again, at any broker, and sometimes gives up: then the outcome is unknown. It
// reports whether there was an answer.
func (m *maker) ask(s *subject, channel string, want standing) bool {
	path, q := "/topic/", url.Values{"topic": {s.name}}
	if channel != "" {
		path, q = "/channel/", url.Values{"topic": {s.name}, "channel": {channel}}
	}
	path += map[standing]string{there: "create", gone: "delete"}[want]
	for first := true; !m.stopped(); first = false {
		m.look.RLock()
		s.set(channel, asked)
		status, text := m.request(path, q, "")
		switch {
		case status == http.StatusOK, status == http.StatusNotFound && want == gone && !first:
			s.set(channel, want)
		case status == http.StatusNotFound, status == http.StatusBadRequest:
			m.fault(fmt.Sprintf("%s of %s %s: %s", path, s.name, channel, text))
		}
		answered := status == http.StatusOK || status == http.StatusNotFound
		m.look.RUnlock()
		if answered || m.random.IntN(4) == 0 {
			return answered
		}
		e2etest.Pause(time.Duration(m.random.IntN(50)) * time.Millisecond)
	}
	return false
}

func (s *subject) set(channel string, to standing) {
	if channel == "" {
		s.topic = to
	} else {
		s.channels[channel] = to
	}
}

// publish puts one message, until it is acknowledged or the test is over.
func (m *maker) publish(s *subject) {
	body := fmt.Sprintf("%s-%d", s.name, len(s.puts))
	m.look.Lock()
	put := &judge.Put{Bodies: []string{body}}
	s.puts = append(s.puts, put)
	m.look.Unlock()
	for {
		m.look.RLock()
		sent, answer := record.Now(), judge.InDoubt
		status, text := m.request("/pub", url.Values{"topic": {s.name}}, body)
		if status == http.StatusOK {
			answer = judge.OK
		}
		put.Attempts = append(put.Attempts, record.Attempt(sent, answer))
		vanished := status == http.StatusNotFound
		if vanished {
			m.fault(fmt.Sprintf("put to %s: %s", s.name, text))
		}
		m.look.RUnlock()
		if status == http.StatusOK || vanished || m.stopped() {
			return
		}
		e2etest.Pause(time.Duration(m.random.IntN(50)) * time.Millisecond)
	}
}

// request asks one of the brokers; status 0 is no answer.
func (m *maker) request(path string, q url.Values, body string) (status int, text string) {
	b := m.c.Brokers[m.random.IntN(len(m.c.Brokers))]
	resp, err := m.client.Post("http://"+b.HTTP+path+"?"+q.Encode(), "", strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, fmt.Sprintf("%s %s", b.Name, answer)
}

// fault notes the first answer that contradicts an earlier one.
func (m *makers) fault(what string) {
	select {
	case m.faults <- what:
	default:
	}
}
