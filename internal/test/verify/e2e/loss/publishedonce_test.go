package loss

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/option"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// TestPublishedOnce: producers publish over HTTP and try again at the next broker until they are
// answered OK, through kills of leaders, a move and a restart of all brokers. With message ids each
// message is in the log once. So it is with go-nsq, which knows no ids, in a topic that recognises
// messages by their content, and with producers that number their messages: each answer names the first place. LOCKSTEP_MESSAGES, LOCKSTEP_KILLS, LOCKSTEP_MOVES and LOCKSTEP_RESTARTS
// are the size; the long form also counts what the same producers store twice without ids.
func TestPublishedOnce(t *testing.T) {
	t.Parallel()
	t.Run("with ids", func(t *testing.T) {
		p := publishThroughFaults(t, byID)
		require.Zero(t, p.twice, "messages are stored twice")
		require.NotZero(t, p.recognised.Load(), "no repeat was recognised")
	})
	t.Run("by content", func(t *testing.T) {
		p := publishThroughFaults(t, byContent)
		require.Zero(t, p.twice, "messages are stored twice")
		require.NotZero(t, p.retries.Load(), "nothing was published again")
		for i, path := range []string{"/pub", "/mpub"} { // HTTP says so
			resp, err := http.Post("http://"+p.c.Brokers[i].HTTP+path+"?topic="+onceTopic, "", strings.NewReader(fmt.Sprint("message-", p.messages-1)))
			require.NoError(t, err)
			_ = resp.Body.Close()
			require.Equal(t, "true", resp.Header.Get("X-Nsq-Duplicate"), path)
		}
	})
	t.Run("by number", func(t *testing.T) {
		p := publishThroughFaults(t, byNumber)
		require.Zero(t, p.twice, "messages are stored twice")
		require.NotZero(t, p.recognised.Load(), "no repeat was recognised")
	})
	if env.Long() {
		t.Run("without ids", func(t *testing.T) { publishThroughFaults(t, byNothing) })
	}
}

// recognition is how the brokers recognise a message that comes again.
type recognition string

const (
	byID      recognition = "id"      // the producers use HTTP
	byContent recognition = "content" // the producers use go-nsq
	byNumber  recognition = "number"  // the producers use PUB_EXT
	byNothing recognition = ""        // the producers use HTTP
)

// insistent is producers that try again.
type insistent struct {
	t          *testing.T
	c          *e2etest.Cluster
	by         recognition
	messages   int
	next       atomic.Int64 // message
	answered   atomic.Int64
	retries    atomic.Int64
	recognised atomic.Int64
	stored     map[string]int
	twice      int
	clients    sync.WaitGroup
}

const (
	insistentProducers = 8
	onceTopic          = "once"
	lostEvery          = 50 // answers, of which the producer loses one
)

func publishThroughFaults(t *testing.T, by recognition) *insistent {
	kills, moves, restarts, messages := 3, 1, 1, 4000
	if by == byContent || by == byNumber { // the same rules at the leaders: the short form is shorter
		kills, moves, restarts, messages = 1, 0, 0, 1000
	}
	kills, moves, restarts = env.Number(t, "LOCKSTEP_KILLS", kills), env.Number(t, "LOCKSTEP_MOVES", moves), env.Number(t, "LOCKSTEP_RESTARTS", restarts)
	p := &insistent{t: t, c: e2etest.Start(t, 4), by: by, messages: env.Number(t, "LOCKSTEP_MESSAGES", messages), stored: map[string]int{}}
	p.c.Create(onceTopic, "archive", 2)
	if by == byContent {
		out, err := p.c.Nsqctl("topic", "create", onceTopic, "--dedupe", "content")
		require.NoError(t, err, out)
		require.Contains(t, out, "dedupe=content")
		p.c.Until("the option at all brokers", func() bool {
			return !slices.ContainsFunc(p.c.Brokers, func(b devcluster.Broker) bool {
				var v api.ClusterView
				return p.c.Get(b, "/v1/cluster", &v) != nil || !slices.ContainsFunc(v.Topics, func(x api.TopicView) bool { return x.Dedupe == option.DedupeContent })
			})
		})
	}
	for i := range insistentProducers {
		p.clients.Go(func() { p.publishAll(i) })
	}
	faults := slices.Concat(slices.Repeat([]func(int){p.kill}, kills), slices.Repeat([]func(int){p.move}, moves), slices.Repeat([]func(int){p.restart}, restarts))
	rand.New(rand.NewPCG(uint64(len(faults)), 1)).Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	for i, fault := range faults {
		p.c.Until("progress", func() bool { return p.answered.Load() >= int64(p.messages*(i+1)/(len(faults)+2)) })
		fault(i)
		p.c.Whole(onceTopic)
	}
	p.clients.Wait()
	p.c.Whole(onceTopic)
	p.c.Check(onceTopic)
	for _, m := range p.c.PeekAll(onceTopic) {
		p.stored[m.Body]++
	}
	for _, n := range p.stored {
		p.twice += n - 1
	}
	require.Len(t, p.stored, p.messages, "each message is stored")
	t.Logf("by %q: %d messages, %d tried again, %d repeats recognised, %d stored twice", by, p.messages, p.retries.Load(), p.recognised.Load(), p.twice)
	return p
}

// kill kills the leader of a partition, and starts it again when another one leads.
func (p *insistent) kill(i int) {
	leader := p.c.LeaderOf(onceTopic, i%2)
	p.c.Crash(leader)
	p.c.LeaderOf(onceTopic, i%2)
	p.c.Restart(leader)
}

// restart kills all brokers, and starts them again.
func (p *insistent) restart(int) {
	p.c.CrashAll()
	require.NoError(p.t, p.c.StartAll())
	p.c.WaitReady()
	p.c.Back()
}

// move gives the first replica of a partition to the broker that has none.
func (p *insistent) move(i int) {
	v, ok := p.c.Topic(onceTopic)
	require.True(p.t, ok)
	replicas := v.Partitions[i%2].Replicas
	for _, name := range e2etest.Names(p.c) {
		if !slices.Contains(replicas, ident.Node(name)) {
			p.c.Must("topic", "move", onceTopic, "--partition", fmt.Sprint(i%2), "--from", string(replicas[0]), "--to", name, "--wait", "60s")
			return
		}
	}
	p.t.Error("each broker has a replica")
}

// publishAll publishes the next message until there is none.
func (p *insistent) publishAll(broker int) {
	publish, end := p.overHTTP()
	switch p.by {
	case byContent:
		publish, end = p.overTCP()
	case byNumber:
		publish, end = p.numbered(broker)
	}
	defer end()
	for {
		n := int(p.next.Add(1)) - 1
		if n >= p.messages {
			return
		}
		body := fmt.Sprintf("message-%d", n)
		for deadline := time.Now().Add(e2etest.WaitLimit); !publish(broker%len(p.c.Brokers), body); broker++ {
			p.retries.Add(1)
			if !assert.True(p.t, time.Now().Before(deadline), "%s is not taken", body) {
				return
			}
			e2etest.Pause(5 * time.Millisecond)
		}
		if n%lostEvery == 0 { // the answer is lost
			p.retries.Add(1)
			broker++
			publish(broker%len(p.c.Brokers), body)
		}
		p.answered.Add(1)
	}
}

// overHTTP gives a function that tries once.
func (p *insistent) overHTTP() (publish func(broker int, body string) bool, end func()) {
	client := &http.Client{Timeout: 2 * time.Second}
	return func(broker int, body string) bool {
		r, err := http.NewRequest(http.MethodPost, "http://"+p.c.Brokers[broker].HTTP+"/pub?topic="+onceTopic, strings.NewReader(body))
		if !assert.NoError(p.t, err) {
			return false
		}
		if p.by == byID {
			r.Header.Set("X-Nsq-Message-Id", body)
		}
		answer, err := client.Do(r)
		if err != nil {
			return false
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if answer.Header.Get("X-Nsq-Duplicate") == "true" {
			p.recognised.Add(1)
		}
		return answer.StatusCode == http.StatusOK
	}, client.CloseIdleConnections
}

// overTCP is the same with go-nsq.
func (p *insistent) overTCP() (publish func(broker int, body string) bool, end func()) {
	var producers []*nsq.Producer
	for _, b := range p.c.Brokers {
		producer, err := nsq.NewProducer(b.TCP, nsq.NewConfig())
		require.NoError(p.t, err)
		producer.SetLogger(clusters.Silent(), nsq.LogLevelError)
		producers = append(producers, producer)
	}
	return func(broker int, body string) bool { return producers[broker].Publish(onceTopic, []byte(body)) == nil }, func() {
		for _, x := range producers {
			x.Stop()
		}
	}
}

// numbered is the same with the extended commands: a producer names itself at each broker and gives message-N the
// number N. A message that is answered again is answered with the same place.
func (p *insistent) numbered(producer int) (publish func(broker int, body string) bool, end func()) {
	name := fmt.Sprintf(`{"producer_id":"producer-%d"}`, producer)
	conns, places := map[int]net.Conn{}, map[string]string{}
	dial := func(broker int) bool {
		conn, err := net.DialTimeout("tcp", p.c.Brokers[broker].TCP, time.Second)
		if err != nil {
			return false
		}
		conns[broker] = conn
		_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
		_, _ = conn.Write(append(binary.BigEndian.AppendUint32([]byte("  V2IDENTIFY\n"), uint32(len(name))), name...))
		_, err = io.ReadFull(conn, make([]byte, 10))
		return err == nil
	}
	return func(broker int, body string) bool {
			if conns[broker] == nil && !dial(broker) {
				return false
			}
			conn, answer := conns[broker], make([]byte, 8+30)
			_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
			header := fmt.Sprintf(`{"##seq":%s,"##trace_id":"1"}`, strings.TrimPrefix(body, "message-"))
			put := binary.BigEndian.AppendUint32([]byte("PUB_EXT "+onceTopic+"\n"), uint32(2+len(header)+len(body)))
			put = append(append(binary.BigEndian.AppendUint16(put, uint16(len(header))), header...), body...)
			_, _ = conn.Write(put) // the read has the error
			if _, err := io.ReadFull(conn, answer); err != nil || !strings.HasPrefix(string(answer[8:]), "OK") {
				_ = conn.Close() // also after an error, which has another length
				delete(conns, broker)
				return false
			}
			if first, again := places[body]; again {
				p.recognised.Add(1)
				assert.Equal(p.t, first, string(answer), "%s is answered with another place", body)
			}
			places[body] = string(answer)
			return true
		}, func() {
			for _, conn := range conns {
				_ = conn.Close()
			}
		}
}
