package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
)

const (
	// operatorLimit is the longest that a broker that is well may take for a command. The longest
	// limit of its own is that of a creation, 9 s.
	operatorLimit = 12 * time.Second
	operatorEvery = 250 * time.Millisecond
	// effectLimit is how long after its success a command's effect may stay unseen: the brokers'
	// views of the metadata are a little behind.
	effectLimit = 2 * time.Second
)

// operator gives commands to brokers while faults continue, and looks at their answers: either a
// command succeeds and its effect is there, or the answer says why not. A broker that the harness
// has hurt need not answer.
type operator struct {
	*cluster
	random *rand.Rand
	client *http.Client
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	n        int // topics made so far
	given    int
	refused  map[string]int
	slowest  time.Duration
	faults   []string
	channels map[string]bool // of the present topic → paused
	topic    string          // the current one; "" = none
}

// command is one, with what must be seen after its success.
type command struct {
	path   string
	query  url.Values
	effect func(b *broker) (bool, error) // as a broker shows it
	done   func()                        // after its success
}

func (c *cluster) operate(seed uint64) *operator {
	ctx, cancel := context.WithCancel(context.Background())
	o := &operator{
		cluster: c, random: rand.New(rand.NewPCG(seed, 1)), cancel: cancel, refused: map[string]int{},
		client: &http.Client{Timeout: 2 * operatorLimit, Transport: &http.Transport{DisableKeepAlives: true}},
	}
	o.wg.Go(func() { // ends at stop
		for ctx.Err() == nil {
			o.give(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(operatorEvery):
			}
		}
	})
	c.t.Cleanup(func() { o.stop() })
	return o
}

// stop ends the commands and returns the faults.
func (o *operator) stop() []string {
	o.cancel()
	o.wg.Wait()
	return o.faults
}

// draw chooses a command that is possible now.
func (o *operator) draw() command {
	t, c := o.topic, fmt.Sprintf("c%d", o.random.IntN(3))
	if t == "" {
		t = fmt.Sprintf("operated%d", o.n)
		partitions := 1 + o.random.IntN(3)
		return command{"/topic/create", url.Values{"topic": {t}, "partitions": {strconv.Itoa(partitions)}},
			func(b *broker) (bool, error) { return o.hasPartitions(b, t, partitions) },
			func() { o.topic, o.channels = t, map[string]bool{} }}
	}
	paused, exists := o.channels[c]
	q := url.Values{"topic": {t}, "channel": {c}}
	switch kind := o.random.IntN(10); {
	case kind == 0:
		return command{"/topic/delete", url.Values{"topic": {t}},
			func(b *broker) (bool, error) { return o.hasPartitions(b, t, 0) },
			func() { o.topic = ""; o.n++ }}
	case !exists:
		return command{"/channel/create", q, func(b *broker) (bool, error) { return o.hasChannel(b, t, c, false) },
			func() { o.channels[c] = false }}
	case kind < 3:
		return command{"/channel/delete", q, func(b *broker) (bool, error) {
			all, err := o.channelsOf(b, t)
			return !slices.ContainsFunc(all, func(v api.ChannelView) bool { return v.Channel == c }), err
		}, func() { delete(o.channels, c) }}
	case kind < 6:
		backoff := int64(1 + o.random.IntN(1000))
		q.Set("retry_backoff", fmt.Sprintf("%dms", backoff))
		return command{"/v1/channel/policy", q, func(b *broker) (bool, error) {
			var p api.ChannelPolicy
			err := o.get(b, "/v1/channel/policy?"+url.Values{"topic": {t}, "channel": {c}}.Encode(), &p)
			return p.BackoffMS == backoff, err
		}, func() {}}
	case paused:
		return command{"/channel/unpause", q, func(b *broker) (bool, error) { return o.hasChannel(b, t, c, false) },
			func() { o.channels[c] = false }}
	default:
		return command{"/channel/pause", q, func(b *broker) (bool, error) { return o.hasChannel(b, t, c, true) },
			func() { o.channels[c] = true }}
	}
}

func (o *operator) hasPartitions(b *broker, topic string, n int) (bool, error) {
	var v api.ClusterView
	err := o.get(b, "/v1/cluster", &v)
	found := 0
	for _, t := range v.Topics {
		if t.Topic == topic {
			found = len(t.Partitions)
		}
	}
	return found == n, err
}

func (o *operator) channelsOf(b *broker, topic string) (all []api.ChannelView, err error) {
	var v struct{ Channels []api.ChannelView }
	err = o.get(b, "/v1/topic/channels?"+url.Values{"topic": {topic}}.Encode(), &v)
	return v.Channels, err
}

// hasChannel reports whether a broker shows a channel, and whether the partitions that it leads
// have paused it or not: the metadata says what was asked for, the leader what is so.
func (o *operator) hasChannel(b *broker, topic, channel string, paused bool) (bool, error) {
	all, err := o.channelsOf(b, topic)
	if err != nil || !slices.ContainsFunc(all, func(v api.ChannelView) bool { return v.Channel == channel && v.Paused == paused }) {
		return false, err
	}
	for _, leader := range o.brokers {
		if _, well := o.health.well(leader.name); !well || o.health.apart(leader.number(), effectLimit) {
			continue // a leader that is cut off does not hear of it, and is replaced
		}
		var s struct{ Topics []api.TopicStats }
		if err := o.get(leader, "/stats?"+url.Values{"format": {"json"}, "topic": {topic}}.Encode(), &s); err != nil {
			return false, err
		}
		for _, t := range s.Topics {
			if slices.ContainsFunc(t.Channels, func(c api.ChannelStats) bool { return c.ChannelName == channel && c.Paused != paused }) {
				return false, nil
			}
		}
	}
	return true, nil
}

// get asks one broker for JSON.
func (o *operator) get(b *broker, path string, into any) error {
	resp, err := o.client.Get("http://" + b.http() + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// give gives one command to a broker and judges the answer.
func (o *operator) give(ctx context.Context) {
	b, c := o.brokers[o.random.IntN(len(o.brokers))], o.draw()
	if _, well := o.health.well(b.name); !well {
		return
	}
	began := time.Now()
	status, text, err := o.post(b, c)
	took := time.Since(began)
	since, well := o.health.well(b.name)
	if well = well && since.Before(began); !well || ctx.Err() != nil {
		o.forget() // the broker was hurt in the meantime: it owes no answer
		return
	}
	o.mu.Lock()
	o.given++
	o.slowest = max(o.slowest, took)
	o.mu.Unlock()
	name := fmt.Sprintf("%s POST %s?%s at %s", began.Format(stamp), c.path, c.query.Encode(), b.name)
	switch {
	case err != nil || took > operatorLimit:
		o.fault("%s: silence for %s: %v", name, took.Round(time.Millisecond), err)
	case status != http.StatusOK && reason(text) == "":
		o.fault("%s: %d without a reason: %q", name, status, text)
	case status != http.StatusOK:
		o.mu.Lock()
		o.refused[reason(text)]++
		o.mu.Unlock()
	case !o.effective(c):
		o.fault("%s: success, and no effect after %s", name, effectLimit)
	default:
		c.done()
		return
	}
	o.forget()
}

// forget continues with another topic: a command without success may be in doubt.
func (o *operator) forget() { o.topic = ""; o.n++ }

func (o *operator) post(b *broker, c command) (status int, text string, err error) {
	resp, err := o.client.Post("http://"+b.http()+c.path+"?"+c.query.Encode(), "", nil)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// reason is what an answer says besides its status; "" = nothing.
func reason(text string) string {
	var answer struct{ Message string }
	if json.Unmarshal([]byte(text), &answer) == nil {
		text = answer.Message
	}
	text = strings.TrimSpace(text)
	if text == "INTERNAL_ERROR" {
		return ""
	}
	return text
}

// effective reports whether some broker sees the effect, or none is well enough to show it.
func (o *operator) effective(c command) bool {
	shown := false
	_, seen := within(effectLimit, func() bool {
		shown = false
		for _, b := range o.brokers {
			if _, well := o.health.well(b.name); !well {
				continue
			}
			ok, err := c.effect(b)
			if ok && err == nil {
				return true
			}
			shown = shown || err == nil
		}
		return false
	})
	return seen || !shown
}

func (o *operator) fault(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.faults = append(o.faults, fmt.Sprintf(format, args...))
}

// String is what a round says of it.
func (o *operator) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	refused := 0
	for _, n := range o.refused {
		refused += n
	}
	return fmt.Sprintf("%d commands, %d refused with a reason, the slowest %s", o.given, refused, o.slowest.Round(time.Millisecond))
}
