package e2e

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/testkit/env"
)

// TestPublishedOnce: producers publish over HTTP and try again at the next broker until they are
// answered OK, through kills of leaders, a move and a restart of all brokers. With message ids each
// message is in the log once. LOCKSTEP_MESSAGES, LOCKSTEP_KILLS, LOCKSTEP_MOVES and LOCKSTEP_RESTARTS
// are the size; the long form also counts what the same producers store twice without ids.
func TestPublishedOnce(t *testing.T) {
	t.Run("with ids", func(t *testing.T) {
		p := publishThroughFaults(t, true)
		require.Zero(t, p.twice, "messages are stored twice")
		require.NotZero(t, p.recognised.Load(), "no repeat was recognised")
	})
	if env.Long() {
		t.Run("without ids", func(t *testing.T) { publishThroughFaults(t, false) })
	}
}

// insistent is producers that try again.
type insistent struct {
	t          *testing.T
	c          *cluster
	ids        bool
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

func publishThroughFaults(t *testing.T, ids bool) *insistent {
	kills, moves, restarts := env.Number(t, "LOCKSTEP_KILLS", 3), env.Number(t, "LOCKSTEP_MOVES", 1), env.Number(t, "LOCKSTEP_RESTARTS", 1)
	p := &insistent{t: t, c: start(t, 4), ids: ids, messages: env.Number(t, "LOCKSTEP_MESSAGES", 4000), stored: map[string]int{}}
	p.c.create(onceTopic, "archive", 2)
	for i := range insistentProducers {
		p.clients.Go(func() { p.publishAll(i) })
	}
	faults := slices.Concat(slices.Repeat([]func(int){p.kill}, kills), slices.Repeat([]func(int){p.move}, moves), slices.Repeat([]func(int){p.restart}, restarts))
	rand.New(rand.NewPCG(uint64(len(faults)), 1)).Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	for i, fault := range faults {
		p.c.until("progress", func() bool { return p.answered.Load() >= int64(p.messages*(i+1)/(len(faults)+2)) })
		fault(i)
		p.c.whole(onceTopic)
	}
	p.clients.Wait()
	p.c.whole(onceTopic)
	p.c.check(onceTopic)
	for _, m := range p.c.peekAll(onceTopic) {
		p.stored[m.Body]++
	}
	for _, n := range p.stored {
		p.twice += n - 1
	}
	require.Len(t, p.stored, p.messages, "each message is stored")
	t.Logf("ids %v: %d messages, %d tried again, %d repeats recognised, %d stored twice", ids, p.messages, p.retries.Load(), p.recognised.Load(), p.twice)
	return p
}

// kill kills the leader of a partition, and starts it again when another one leads.
func (p *insistent) kill(i int) {
	leader := p.c.leaderOf(onceTopic, i%2)
	p.c.kill(leader)
	p.c.leaderOf(onceTopic, i%2)
	p.c.restart(leader)
}

// restart kills all brokers, and starts them again.
func (p *insistent) restart(int) {
	p.c.killAll()
	require.NoError(p.t, p.c.StartAll())
	p.c.ready()
	p.c.back()
}

// move gives the first replica of a partition to the broker that has none.
func (p *insistent) move(i int) {
	v, ok := p.c.topic(onceTopic)
	require.True(p.t, ok)
	replicas := v.Partitions[i%2].Replicas
	for _, name := range names(p.c) {
		if !slices.Contains(replicas, ident.Node(name)) {
			p.c.must("topic", "move", onceTopic, "--partition", fmt.Sprint(i%2), "--from", string(replicas[0]), "--to", name, "--wait", "60s")
			return
		}
	}
	p.t.Error("each broker has a replica")
}

// publishAll publishes the next message until there is none.
func (p *insistent) publishAll(broker int) {
	client := &http.Client{Timeout: 2 * time.Second}
	defer client.CloseIdleConnections()
	for {
		n := int(p.next.Add(1)) - 1
		if n >= p.messages {
			return
		}
		body := fmt.Sprintf("message-%d", n)
		for deadline := time.Now().Add(waitLimit); !p.publish(client, broker, body); broker++ {
			p.retries.Add(1)
			if !assert.True(p.t, time.Now().Before(deadline), "%s is not taken", body) {
				return
			}
			pause(5 * time.Millisecond)
		}
		if n%lostEvery == 0 { // the answer is lost
			p.retries.Add(1)
			broker++
			p.publish(client, broker, body)
		}
		p.answered.Add(1)
	}
}

// publish tries once.
func (p *insistent) publish(client *http.Client, broker int, body string) bool {
	at := p.c.Brokers[broker%len(p.c.Brokers)]
	r, err := http.NewRequest(http.MethodPost, "http://"+at.HTTP+"/pub?topic="+onceTopic, strings.NewReader(body))
	if !assert.NoError(p.t, err) {
		return false
	}
	if p.ids {
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
}
