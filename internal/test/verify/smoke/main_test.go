package smoke

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/stocknsq"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

func TestMain(m *testing.M) { e2etest.Main(m) }

// slowMachine are the settings of brokers that may get no processor for seconds: none of them is
// declared dead for that.
var slowMachine = []string{
	"--session-ttl=30s", "--etcd-election-timeout=1s", "--peer-timeout=10s", "--replica-timeout=15s",
	"--leader-hold=30s", "--write-timeout=30s", "--put-hold=75s", "--msg-timeout=10m", "--login-timeout=1m",
	"--min-free-disk-bytes=1",
}

// pace is the pause between two attempts.
const pace = 20 * time.Millisecond

// smoke is the cluster of three that all parts of the test use.
type smoke struct {
	*e2etest.Cluster
	ca     *certs.Authority
	tools  stocknsq.Binaries
	lookup *stocknsq.Process // an nsqlookupd of stock NSQ at which the brokers register
	alone  *e2etest.Cluster  // one broker, another cluster
	client *http.Client
	root   *testing.T             // of all parts
	token  atomic.Pointer[string] // of requests, once there are users
	shop   string                 // the token of a user with few rights
}

// RoundTrip gives the token to a request that has none.
func (s *smoke) RoundTrip(r *http.Request) (*http.Response, error) {
	if token := s.token.Load(); token != nil && r.Header["Authorization"] == nil {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+*token)
	}
	return connections.RoundTrip(r)
}

// CloseIdleConnections is called at the end of the cluster.
func (s *smoke) CloseIdleConnections() { connections.CloseIdleConnections() }

var connections = &http.Transport{}

// TestSmoke has parts that need each other's messages: a part that fails ends the test.
func TestSmoke(t *testing.T) {
	e2etest.Processes(t)
	s := start(t)
	for _, part := range []struct {
		name string
		run  func()
	}{
		{"quickStart", s.quickStart}, {"clients", s.clients}, {"pauses", s.pauses}, {"http", s.http}, {"receipts", s.receipts},
		{"order", s.order}, {"deadLetters", s.deadLetters}, {"replay", s.replay}, {"topics", s.topics}, {"stockTools", s.stockTools},
		{"nsqadmin", s.nsqadmin}, {"exportImport", s.exportImport}, {"mirror", s.mirror}, {"faults", s.faults},
		{"stopAll", s.stopAll}, {"users", s.users}, {"killAll", s.killAll},
	} {
		ok := t.Run(part.name, func(t *testing.T) {
			s.T = t
			defer func() { s.T = t }()
			part.run()
		})
		s.T = t
		if !ok {
			t.FailNow()
		}
	}
}

// start starts the processes. Clients may use TLS or not; brokers must show each other a
// certificate and a token.
func start(t *testing.T) *smoke {
	t.Helper()
	s := &smoke{ca: certs.New(t), tools: stocknsq.Apps(t, e2etest.Built.Path("nsq-"+stocknsq.Version), "nsqlookupd", "nsqadmin", "nsq_tail", "nsq_to_file", "to_nsq"), root: t}
	s.client = &http.Client{Timeout: wait.Limit, Transport: s}
	s.ca.IssueUntil(time.Now().AddDate(1, 0, 0), "broker", "n1", "n2", "n3") // health warns of one that expires soon
	s.lookup = s.tools.Lookupd(t)
	flags := append(slices.Clone(slowMachine), "--lookupd-tcp-address="+s.lookup.TCP,
		"--rpc-tls-cert="+s.ca.File("broker.pem"), "--rpc-tls-key="+s.ca.File("broker.key"), "--rpc-tls-ca="+s.ca.File("ca.pem"),
		"--cluster-token-file="+s.ca.File("ca.key"), "--tls-cert="+s.ca.File("broker.pem"), "--tls-key="+s.ca.File("broker.key"))
	s.Cluster = e2etest.LayOut(t, e2etest.FreePorts(t, 3), 3, flags...)
	s.HTTP = s.client
	s.alone = e2etest.LayOut(t, e2etest.FreePorts(t, 1), 1, slowMachine...)
	require.NoError(t, s.StartAll())
	require.NoError(t, s.alone.StartAll())
	s.WaitReady()
	s.alone.WaitReady()
	return s
}

// until repeats an operation until it succeeds.
func (s *smoke) until(what string, try func() error) {
	s.T.Helper()
	for end := time.Now().Add(wait.Limit); ; e2etest.Pause(pace) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			s.T.Fatalf("hangs: %s: %v", what, err)
		}
	}
}

// must is until for a condition.
func (s *smoke) must(what string, ok func() bool) {
	s.T.Helper()
	s.until(what, func() error {
		if !ok() {
			return fmt.Errorf("not yet")
		}
		return nil
	})
}

// ask sends one request to a broker, with headers in pairs.
func (s *smoke) ask(b devcluster.Broker, method, path, body string, headers ...string) (status int, text string, err error) {
	req, err := http.NewRequestWithContext(s.T.Context(), method, "http://"+b.HTTP+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(all), err
}

// post repeats a request until it succeeds.
func (s *smoke) post(b devcluster.Broker, path, body string, headers ...string) (text string) {
	s.T.Helper()
	s.until("POST "+path, func() error {
		status, answer, err := s.ask(b, http.MethodPost, path, body, headers...)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%d %s", status, answer)
		}
		text = answer
		return err
	})
	return text
}

// get is the text of a page.
func (s *smoke) get(b devcluster.Broker, path string) (text string) {
	s.T.Helper()
	s.until("GET "+path, func() error {
		status, answer, err := s.ask(b, http.MethodGet, path, "")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%d %s", status, answer)
		}
		text = answer
		return err
	})
	return text
}

// ctl repeats a command of nsqctl until it succeeds, and returns all that it prints.
func (s *smoke) ctl(args ...string) (out string) {
	s.T.Helper()
	s.until("nsqctl "+strings.Join(args, " "), func() (err error) {
		out, err = s.run("", append(args, s.Addresses()...)...)
		return err
	})
	return out
}

// run runs nsqctl with an input, without addresses of brokers.
func (s *smoke) run(input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(s.T.Context(), wait.Limit)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, e2etest.Built.Path("nsqctl"), args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Dir = strings.NewReader(input), &out, &out, s.Dir
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, &out)
	}
	return out.String(), nil
}

// topic makes a topic with its channels, and waits until it is whole.
func (s *smoke) topic(name string, options []string, channels ...string) {
	s.T.Helper()
	s.ctl(append([]string{"topic", "create", name}, options...)...)
	for _, channel := range channels {
		s.ctl("channel", "create", name, channel)
	}
	s.Whole(name)
}

// config is that of a client that waits for a broker as long as it takes.
func config() *nsq.Config {
	c := nsq.NewConfig()
	c.DialTimeout, c.WriteTimeout, c.ReadTimeout = time.Minute, time.Minute, time.Minute
	c.LookupdPollInterval, c.MaxAttempts, c.MaxInFlight, c.MaxBackoffDuration = 250*time.Millisecond, 0, 100, 0
	return c
}

// producer publishes at one broker, and repeats what fails.
type producer struct {
	s *smoke
	p *nsq.Producer
}

func (s *smoke) producer(b devcluster.Broker, c *nsq.Config) producer {
	s.T.Helper()
	p, err := nsq.NewProducer(b.TCP, c)
	require.NoError(s.T, err)
	p.SetLogger(clusters.Silent(), nsq.LogLevelError)
	s.T.Cleanup(p.Stop)
	return producer{s, p}
}

func (p producer) publish(topic string, bodies ...string) {
	p.s.T.Helper()
	for _, body := range bodies {
		p.s.until("PUB "+body, func() error { return p.p.Publish(topic, []byte(body)) })
	}
}

// seen are the bodies that a consumer has got.
type seen struct {
	s  *smoke
	in chan string
	of map[string]int
}

// consume attaches a consumer to some brokers. handle may be nil.
func (s *smoke) consume(topic, channel string, c *nsq.Config, handle nsq.HandlerFunc, brokers ...devcluster.Broker) *seen {
	s.T.Helper()
	got := &seen{s, make(chan string, 10_000), map[string]int{}}
	consumer, err := nsq.NewConsumer(topic, channel, c)
	require.NoError(s.T, err)
	consumer.SetLogger(clusters.Silent(), nsq.LogLevelError)
	consumer.AddHandler(nsq.HandlerFunc(func(m *nsq.Message) error {
		if handle != nil {
			if err := handle(m); err != nil {
				return err
			}
		}
		got.in <- string(m.Body)
		return nil
	}))
	for _, b := range brokers {
		s.until("connect to "+b.Name, func() error {
			if err := consumer.ConnectToNSQD(b.TCP); err != nil && err != nsq.ErrAlreadyConnected {
				return err
			}
			return nil
		})
	}
	s.T.Cleanup(func() { consumer.Stop(); <-consumer.StopChan })
	return got
}

// gets waits until all these bodies have come. No other body may come before them.
func (g *seen) gets(bodies ...string) {
	g.s.T.Helper()
	want := map[string]bool{}
	for _, body := range bodies {
		want[body] = true
		if g.of[body] > 0 {
			delete(want, body)
		}
	}
	for len(want) > 0 {
		body := wait.For(g.s.T, g.in, "one of %d messages", len(want))
		require.True(g.s.T, want[body] || g.of[body] > 0, "%q was not published: %v", body, bodies)
		g.of[body]++
		delete(want, body)
	}
}

// tail consumes with nsqctl until all these bodies have come, and returns them in the order in
// which they first came.
func (s *smoke) tail(topic, channel string, bodies []string, flags ...string) (order []string) {
	s.T.Helper()
	s.until("tail "+topic, func() error {
		for len(order) < len(bodies) {
			args := []string{"tail", "--topic", topic, "--channel", channel, "-n", fmt.Sprint(len(bodies) - len(order))}
			if len(flags) == 0 {
				args = append(args, s.Addresses()...)
			}
			out, err := s.run("", append(args, flags...)...)
			for _, line := range strings.Split(out, "\n") {
				if slices.Contains(bodies, line) && !slices.Contains(order, line) {
					order = append(order, line)
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return order
}

// query is the path of an operation of a topic and a channel.
func query(path, topic, channel string, more ...string) string {
	q := url.Values{"topic": {topic}}
	if channel != "" {
		q.Set("channel", channel)
	}
	for i := 0; i < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return path + "?" + q.Encode()
}

// bodies are those of the log of a topic, sorted, each once.
func bodies(c *e2etest.Cluster, topic string) (all []string) {
	c.T.Helper()
	for _, m := range c.PeekAll(topic) {
		all = append(all, m.Body)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
