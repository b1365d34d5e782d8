package stops

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/devcluster"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

const (
	firstMoments = 50 * time.Millisecond // clients connect within it after the port opens
	firstAnswer  = 15 * time.Second      // longer than --put-hold, which bounds the wait of a starting broker
)

// TestFirstMomentsOfABroker: clients that connect as soon as the port of a broker opens, or within 50 ms after it, see a pause
// and no error, on a new data path and on one of a broker that was killed. LOCKSTEP_STARTS is the number of starts.
func TestFirstMomentsOfABroker(t *testing.T) {
	e2etest.Processes(t)
	c := e2etest.LayOut(t, e2etest.FreePorts(t, 1), 1)
	b := c.Brokers[0]
	var moments firsts
	starts := env.Number(t, "LOCKSTEP_STARTS", e2etest.Rounds(20, 1000))
	for i := range starts {
		if i%2 == 0 {
			require.NoError(t, os.RemoveAll(filepath.Join(c.Dir, b.Name)))
		}
		require.NoError(t, c.Start(b.Name))
		moments.meet(b)
		c.Crash(b.Name)
	}
	t.Logf("%d starts: %s", starts, &moments)
	require.Empty(t, moments.errors)
	require.Equal(t, starts*len(firstClients), len(moments.waits))
}

// TestRestartServesWithinASecond: a killed broker of a running cluster, which takes puts in the meantime, answers clients within a second of
// its new start.
func TestRestartServesWithinASecond(t *testing.T) {
	c := e2etest.Start(t, 3)
	c.Create(e2etest.Topic, e2etest.Channel, 3)
	c.Publishing(e2etest.Topic, 10)
	var took []time.Duration
	var moments firsts
	for i := range e2etest.Rounds(6, 60) {
		victim := e2etest.Names(c)[i%3]
		b, err := c.Broker(victim)
		require.NoError(t, err)
		c.Crash(victim)
		e2etest.Pause(e2etest.Reconnect) // the others lead, and its registration has ended
		began := time.Now()
		require.NoError(t, c.Start(victim))
		moments.meet(*b)
		took = append(took, time.Since(began))
		c.ReadyAgain(victim)
		c.Whole(e2etest.Topic)
	}
	slices.Sort(took)
	t.Logf("from the start to the last answer: %s (median), %s (worst); promised 1 s; %s",
		took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), &moments)
	require.Empty(t, moments.errors)
	require.Less(t, took[len(took)-1], e2etest.Slack(time.Second))
}

// firstClients are the clients that meet a broker at its start. Each answer is what a broker answers that has long been serving.
var firstClients = map[string]func(devcluster.Broker) error{
	"PUB": func(b devcluster.Broker) error {
		return overTCP(b, nsq.Publish("first-pub", []byte("m")), "OK")
	},
	"SUB": func(b devcluster.Broker) error { return overTCP(b, nsq.Subscribe("first-sub", "c"), "OK") },
	"/pub": func(b devcluster.Broker) error {
		_, err := overHTTP(b, http.MethodPost, "/pub?topic=first-http", "m")
		return err
	},
	"nsqadmin": func(b devcluster.Broker) error {
		for _, path := range []string{"/stats?format=json&include_clients=true", "/nodes", "/topics", "/info"} {
			text, err := overHTTP(b, http.MethodGet, path, "")
			if err == nil && !json.Valid([]byte(text)) {
				err = fmt.Errorf("%s is no JSON: %q", path, text)
			}
			if err != nil {
				return err
			}
		}
		return nil
	},
}

func overTCP(b devcluster.Broker, cmd *nsq.Command, want string) error {
	conn, err := net.Dial("tcp", b.TCP)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(firstAnswer))
	text := bytes.NewBuffer(slices.Clone(nsq.MagicV2))
	_, _ = cmd.WriteTo(text) // into memory
	if _, err := conn.Write(text.Bytes()); err != nil {
		return err
	}
	_, answer, err := nsq.ReadUnpackedResponse(conn)
	if err == nil && string(answer) != want {
		err = fmt.Errorf("answer %q", answer)
	}
	return err
}

func overHTTP(b devcluster.Broker, method, path, body string) (string, error) {
	client := http.Client{Timeout: firstAnswer, Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequest(method, "http://"+b.HTTP+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s %q", method, path, resp.Status, text)
	}
	return string(text), err
}

// firsts collects what the first clients of many starts see.
type firsts struct {
	mu     sync.Mutex
	waits  []time.Duration // of each client, from its connection to the last answer
	errors []string
}

// meet waits until the ports of a broker open and lets each first client come within the next moments. It returns after the last answer.
func (f *firsts) meet(b devcluster.Broker) {
	opens(b.TCP)
	opens(b.HTTP)
	var all sync.WaitGroup
	for name, client := range firstClients {
		delay := max(0, time.Duration(rand.Int64N(int64(firstMoments*5/4)))-firstMoments/4) // a fifth of them at once
		all.Go(func() {
			e2etest.Pause(delay)
			began := time.Now()
			err := client(b)
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.waits = append(f.waits, time.Since(began)); err != nil {
				f.errors = append(f.errors, fmt.Sprintf("%s after %s: %v", name, delay, err))
			}
		})
	}
	all.Wait()
}

// opens waits until a port accepts connections.
func opens(address string) {
	for deadline := time.Now().Add(e2etest.StartLimit); time.Now().Before(deadline); e2etest.Pause(time.Millisecond) {
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			return
		}
	}
}

func (f *firsts) String() string {
	slices.Sort(f.waits)
	at := func(share float64) time.Duration {
		return f.waits[int(share*float64(len(f.waits)-1))].Round(time.Millisecond)
	}
	return fmt.Sprintf("%d clients, %d errors; they waited %s (p50), %s (p99), %s (worst)", len(f.waits), len(f.errors), at(.5), at(.99), at(1))
}
