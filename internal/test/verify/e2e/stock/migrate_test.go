package stock

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/testkit/stocknsq"
)

// migrationGuide has the commands that TestMigrate runs.
const migrationGuide = "../../../../../docs/guide/migrate-from-nsq.md"

// guideCommands are the commands of the guide by the word behind their language.
func guideCommands(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(migrationGuide)
	require.NoError(t, err)
	commands := map[string]string{}
	for _, m := range e2etest.GuideBlock.FindAllStringSubmatch(string(text), -1) {
		commands[m[1]] += m[2]
	}
	return commands
}

// migration is a stock cluster with its clients, which move to Lockstep.
type migration struct {
	t       *testing.T
	c       *e2etest.Cluster
	nsqds   []*stocknsq.Process
	lookupd *stocknsq.Process
	limit   time.Duration // for a condition: longer with more messages
	script  func(word string) *exec.Cmd
	topics  []*movingTopic
	bridge  *background // the last one started
}

// movingTopic is a topic with its producer and its channels.
type movingTopic struct {
	name      string
	channels  []*movingChannel
	published atomic.Int64 // answered OK: the messages 0 to published-1
	moved     chan string  // receives the address of Lockstep
	gap       time.Duration
	done      chan struct{}
}

// movingChannel counts the deliveries of each message.
type movingChannel struct {
	topic, name string
	all         *atomic.Int64 // messages that are published
	mu          sync.Mutex
	counts      []uint8
	distinct    int
	last        time.Time
	gap         time.Duration // longest time between two new messages, while messages are published
	gapped      time.Time     // its end
	consumer    *nsq.Consumer
}

// HandleMessage implements nsq.Handler.
func (ch *movingChannel) HandleMessage(m *nsq.Message) error {
	var n int
	if _, err := fmt.Sscanf(string(m.Body), "%d", &n); err != nil {
		return err
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.counts[n]++; ch.counts[n] == 1 {
		ch.distinct++
		now := time.Now()
		if !ch.last.IsZero() && int(ch.all.Load()) < len(ch.counts) {
			if gap := now.Sub(ch.last); gap > ch.gap {
				ch.gap, ch.gapped = gap, now
			}
		}
		ch.last = now
	}
	return nil
}

func (ch *movingChannel) received() int {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.distinct
}

// subscribe starts a consumer; slow ones take at most a thousand messages a second.
func (ch *movingChannel) subscribe(t *testing.T, connect func(*nsq.Consumer) error, slow bool) *nsq.Consumer {
	t.Helper()
	config := nsq.NewConfig()
	config.MaxInFlight = 50
	config.MaxAttempts = 0
	config.LookupdPollInterval = time.Second
	consumer, err := nsq.NewConsumer(ch.topic, ch.name, config)
	require.NoError(t, err)
	consumer.SetLogger(clusters.Silent(), nsq.LogLevelError)
	consumer.AddHandler(nsq.HandlerFunc(func(m *nsq.Message) error {
		if slow {
			e2etest.Pause(time.Millisecond)
		}
		return ch.HandleMessage(m)
	}))
	require.NoError(t, connect(consumer))
	return consumer
}

// TestMigrate moves a stock cluster of three nsqds under load to Lockstep with the commands of the guide. The
// bridge is killed in the middle, and so is a broker of Lockstep. No message is lost on any channel; the times without service and the duplicates
// are printed. LOCKSTEP_MIGRATE sets the number of messages; from 100,000 on there are 20 topics with 60 channels
// (make migrate).
func TestMigrate(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	messages := env.Number(t, "LOCKSTEP_MIGRATE", 6000)
	topics, live := 3, 20*time.Millisecond
	if messages >= 100_000 {
		topics, live = 20, 10*time.Millisecond
	}
	m := newMigration(t, topics, messages/topics)
	began := time.Now()
	m.load(messages/topics*6/10, live)
	for _, topic := range m.topics {
		for _, ch := range topic.channels { // the consumers at NSQ
			ch.consumer = ch.subscribe(t, func(c *nsq.Consumer) error { return c.ConnectToNSQLookupd(m.lookupd.HTTP) }, true)
		}
	}
	m.next("nsqctl migrate run")
	bridge := m.background("run")
	e2etest.Within(t, m.limit, "the first moved messages", func() bool { return m.committed() >= int64(messages/20) })
	require.NoError(t, bridge.kill(syscall.SIGKILL))
	t.Logf("%s: the bridge was killed", time.Since(began).Round(time.Second))
	bridge = m.background("run")
	m.c.Crash("n3") // a broker of Lockstep: its puts in doubt are repeated
	before := m.committed()
	e2etest.Within(t, m.limit, "messages that move without n3", func() bool { return m.committed() > before })
	m.c.Restart("n3")
	t.Logf("%s: a broker of Lockstep was killed, and is back", time.Since(began).Round(time.Second))

	for _, topic := range m.topics { // the consumers: the new one before the old one
		for _, ch := range topic.channels {
			old := ch.consumer
			ch.consumer = ch.subscribe(t, func(c *nsq.Consumer) error { return c.ConnectToNSQDs(m.brokers()) }, false)
			old.Stop()
			<-old.StopChan
		}
	}
	t.Logf("%s: the consumers have moved", time.Since(began).Round(time.Second))
	m.next("move the producers")
	for i, topic := range m.topics {
		topic.moved <- m.brokers()[i%3]
		<-topic.done
	}
	t.Logf("%s: the producers have moved, and ended", time.Since(began).Round(time.Second))
	require.NoError(t, bridge.kill(syscall.SIGINT))
	require.Contains(t, bridge.out.String(), "messages moved in")
	require.Contains(t, m.output("finish"), "nothing is left")
	m.next("nothing is left")
	m.verdict(began, messages/topics)
}

// newMigration starts both clusters and creates the stock topics and channels.
func newMigration(t *testing.T, topics, each int) *migration {
	t.Helper()
	stock, commands := stocknsq.Build(t), guideCommands(t)
	m := &migration{t: t, lookupd: stock.Lookupd(t), limit: e2etest.WaitLimit + time.Duration(topics*each)*time.Millisecond}
	for range 3 {
		m.nsqds = append(m.nsqds, stock.NSQD(t, t.TempDir(), "--mem-queue-size=1000", "--msg-timeout=5s", "--lookupd-tcp-address="+m.lookupd.TCP))
	}
	m.c = e2etest.Start(t, 3)
	here := []string{"lookup1.example:4161", m.lookupd.HTTP, "lookup2.example:4161", m.lookupd.HTTP, "nsqctl ", e2etest.Built.Path("nsqctl") + " "}
	for i, b := range m.c.Brokers {
		here = append(here, fmt.Sprintf("ls%d.example:4150", i+1), b.TCP, fmt.Sprintf("ls%d.example:4151", i+1), b.HTTP)
	}
	m.script = func(word string) *exec.Cmd {
		require.Contains(t, commands, word, "a block of the guide")
		script := strings.NewReplacer(here...).Replace(commands[word])
		require.NotContains(t, script, "example")
		cmd := exec.CommandContext(t.Context(), "sh", "-euc", "exec "+strings.TrimSpace(script))
		cmd.Dir = t.TempDir()
		return cmd
	}
	for i := range topics {
		topic := &movingTopic{name: fmt.Sprintf("topic%02d", i), moved: make(chan string, 1), done: make(chan struct{})}
		for j := range 1 + (i+1)%5 { // 1 to 5: 60 of 20 topics
			topic.channels = append(topic.channels, &movingChannel{topic: topic.name, all: &topic.published, name: fmt.Sprintf("channel%d", j), counts: make([]uint8, each)})
		}
		m.topics = append(m.topics, topic)
		for _, n := range m.nsqds {
			postStock(t, n.HTTP, "/topic/create?topic="+topic.name)
			for _, ch := range topic.channels {
				postStock(t, n.HTTP, "/channel/create?topic="+topic.name+"&channel="+ch.name)
			}
		}
	}
	t.Cleanup(m.end)
	return m
}

// end stops the consumers; the last ones are at Lockstep.
func (m *migration) end() {
	for _, topic := range m.topics {
		for _, ch := range topic.channels {
			if ch.consumer != nil {
				ch.consumer.Stop()
			}
		}
	}
	for _, topic := range m.topics {
		for _, ch := range topic.channels {
			if ch.consumer != nil {
				<-ch.consumer.StopChan
			}
		}
	}
}

func (m *migration) brokers() (tcp []string) {
	for _, b := range m.c.Brokers {
		tcp = append(tcp, b.TCP)
	}
	return tcp
}

// committed is the number of messages in Lockstep.
func (m *migration) committed() (n int64) {
	for _, topic := range m.c.Topics() {
		for _, p := range topic.Partitions {
			n += int64(p.CommittedSequence)
		}
	}
	return n
}

// output runs a block of the guide.
func (m *migration) output(word string) string {
	m.t.Helper()
	out, err := m.script(word).CombinedOutput()
	require.NoError(m.t, err, "%s", out)
	return string(out)
}

// next waits until the status names this step: an nsqd sees the end of a connection a moment later.
func (m *migration) next(step string) {
	m.t.Helper()
	status := ""
	defer func() {
		if m.t.Failed() {
			m.t.Log("the last status:\n" + status)
			if m.bridge != nil {
				m.t.Logf("the bridge has said:\n%s", m.bridge.out)
			}
		}
	}()
	e2etest.Within(m.t, e2etest.WaitLimit, "NEXT: "+step, func() bool {
		status = m.output("status")
		return strings.Contains(status, "NEXT: "+step)
	})
}

// background is a running block of the guide.
type background struct {
	cmd *exec.Cmd
	out *stocknsq.Log
}

func (m *migration) background(word string) *background {
	m.t.Helper()
	b := &background{cmd: m.script(word), out: &stocknsq.Log{}}
	b.cmd.Stdout, b.cmd.Stderr = b.out, b.out
	require.NoError(m.t, b.cmd.Start())
	m.bridge = b
	return b
}

// kill ends it; SIGINT must end it with exit code 0.
func (b *background) kill(s syscall.Signal) error {
	if err := b.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("%w: %s", err, b.out)
	}
	err := b.cmd.Wait()
	if s == syscall.SIGKILL {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, b.out)
	}
	return nil
}

// load publishes the backlog of each topic, and continues with a message every interval until the topic has all of
// its messages: at the stock nsqds, and where the topic has moved to.
func (m *migration) load(backlog int, interval time.Duration) {
	m.t.Helper()
	var loading sync.WaitGroup
	for i, topic := range m.topics {
		loading.Go(func() {
			defer close(topic.done)
			producer := m.producer(m.nsqds[i%3].TCP)
			defer func() { producer.Stop() }()
			for topic.published.Load() < int64(backlog) {
				topic.publish(m.t, producer, min(100, backlog-int(topic.published.Load())))
			}
			ok := time.Now()
			for all := int64(len(topic.channels[0].counts)); topic.published.Load() < all; {
				select {
				case address := <-topic.moved:
					producer.Stop()
					producer = m.producer(address)
					topic.publish(m.t, producer, 1)
					topic.gap = time.Since(ok)
					for left := all - topic.published.Load(); left > 0; left = all - topic.published.Load() {
						topic.publish(m.t, producer, int(min(100, left)))
					}
				case <-m.t.Context().Done():
					return
				case <-time.After(interval):
					if topic.published.Load() < all-1 { // the last one is for Lockstep
						topic.publish(m.t, producer, 1)
						ok = time.Now()
					}
				}
			}
		})
	}
	m.t.Cleanup(loading.Wait)
	e2etest.Within(m.t, m.limit, "the backlog", func() bool {
		for _, topic := range m.topics {
			if topic.published.Load() < int64(backlog) {
				return false
			}
		}
		return true
	})
}

func (m *migration) producer(address string) *nsq.Producer {
	p, err := nsq.NewProducer(address, nsq.NewConfig())
	if err != nil {
		panic(err) // only an invalid configuration fails
	}
	p.SetLogger(clusters.Silent(), nsq.LogLevelError)
	return p
}

// publish publishes the next messages of a topic. An error fails the test: producers must see none.
func (topic *movingTopic) publish(t *testing.T, p *nsq.Producer, count int) {
	first := topic.published.Load()
	bodies := make([][]byte, count)
	for i := range bodies {
		bodies[i] = fmt.Appendf(nil, "%d %s", first+int64(i), strings.Repeat("x", 100))
	}
	for err := p.MultiPublish(topic.name, bodies); err != nil && t.Context().Err() == nil; err = p.MultiPublish(topic.name, bodies) {
		t.Errorf("a producer of %s: %v", topic.name, err)
		e2etest.Pause(100 * time.Millisecond)
	}
	topic.published.Add(int64(count))
}

// verdict waits for the last deliveries, and prints the figures.
func (m *migration) verdict(began time.Time, each int) {
	m.t.Helper()
	channels, lost, twice, messages := 0, 0, 0, 0
	var producerGap time.Duration
	slowest := m.topics[0].channels[0]
	for _, topic := range m.topics {
		require.EqualValues(m.t, each, topic.published.Load())
		messages += each
		producerGap = max(producerGap, topic.gap)
		for _, ch := range topic.channels {
			channels++
			deadline := time.Now().Add(m.limit)
			for ch.received() < each && time.Now().Before(deadline) {
				e2etest.Pause(e2etest.PollEvery)
			}
			ch.mu.Lock()
			for _, n := range ch.counts {
				if n == 0 {
					lost++
				}
				twice += max(0, int(n)-1)
			}
			if ch.gap > slowest.gap {
				slowest = ch
			}
			ch.mu.Unlock()
		}
	}
	m.t.Logf("%d messages, %d topics, %d channels in %s: %d lost, %d deliveries twice; longest time without an OK of a moving producer %s, without a new message on a channel %s (%s of %s, until %s after the beginning)",
		messages, len(m.topics), channels, time.Since(began).Round(time.Second), lost, twice, producerGap.Round(time.Millisecond), slowest.gap.Round(time.Millisecond), slowest.name, slowest.topic, slowest.gapped.Sub(began).Round(time.Second))
	require.Zero(m.t, lost)
	// The killed bridge, and that to the killed broker, had at most their windows in flight (--max-in-flight).
	require.LessOrEqual(m.t, twice, 2*channels*500)
}

// TestMigrateRefuses: brokers of Lockstep as the source, an nsqd that requires TLS; and topics without a channel.
func TestMigrateRefuses(t *testing.T) {
	t.Parallel()
	c := e2etest.Start(t, 1)
	_, problems, err := c.Ctl("migrate", "run", "--from-nsqd-http-address="+c.Brokers[0].HTTP)
	require.Error(t, err)
	require.Contains(t, problems, "broker of Lockstep")
	_, problems, err = c.Ctl("migrate", "run", "--from-lookupd-http-address="+c.Brokers[0].HTTP)
	require.Error(t, err)
	require.Contains(t, problems, "broker of Lockstep")
	ca := certs.New(t)
	ca.Issue("stock")
	stock := stocknsq.Build(t)
	n := stock.NSQD(t, t.TempDir(), "--tls-cert="+ca.File("stock.pem"), "--tls-key="+ca.File("stock.key"), "--tls-required=tcp-https")
	postStock(t, n.HTTP, "/topic/create?topic=unread")
	resp, err := e2etest.Passing.Post("http://"+n.HTTP+"/pub?topic=unread", "", strings.NewReader("hello"))
	require.NoError(t, err)
	_ = resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
	out, problems, err := c.Ctl("migrate", "status", "--from-nsqd-http-address="+n.HTTP, "-o=json")
	require.NoError(t, err, problems)
	var status struct {
		Left  int
		Notes []string
	}
	require.NoError(t, json.Unmarshal([]byte(out), &status))
	require.Equal(t, 1, status.Left)
	require.Contains(t, status.Notes[0], "topic unread has no channel")
	in, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	clear := exec.CommandContext(in, e2etest.Built.Path("nsqctl"), append([]string{"migrate", "run", "--from-nsqd-http-address=" + n.HTTP, "--unread", "--poll=200ms"}, c.Addresses()...)...)
	said, _ := clear.CombinedOutput() // it continues until it is killed
	require.Contains(t, string(said), "unread/lockstep-migrate", "the reason why nothing moves")
	out, problems, err = c.Ctl("migrate", "run", "--from-nsqd-http-address="+n.HTTP, "--from-tls-root-ca-file="+ca.File("ca.pem"), "--unread", "--until-drained", "--poll=200ms")
	require.NoError(t, err, problems)
	require.Contains(t, out, "1 message moved")
	require.Equal(t, map[string]int{"hello": 1}, drainAll(t, c.Brokers[0].TCP, "unread", "first", func(total int) bool { return total == 1 }))
}
