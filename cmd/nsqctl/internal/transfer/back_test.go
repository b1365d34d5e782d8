package transfer

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/clitest"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/msgstream"
	"github.com/lockstepmq/lockstep/internal/testkit/wait"
)

// side is a cluster with the topic orders of one partition: a log in memory behind the HTTP API.
type side struct {
	*httptest.Server
	name string
	id   ident.TopicID

	mu    sync.Mutex
	start uint64
	log   []msgstream.Message
	clock int64
}

func newSide(t *testing.T, name string, id ident.TopicID) *side {
	s := &side{name: name, id: id}
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/cluster", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(edge.ClusterView{Cluster: name, Brokers: []edge.BrokerView{{Name: ident.Node(name), Alive: true}},
			Topics: []edge.TopicView{{Topic: "orders", ID: id, Partitions: []edge.PartitionView{{Leader: ident.Node(name)}}}}})
	})
	mux.HandleFunc("/v1/topic/peek", s.peek)
	mux.HandleFunc("/v1/topic/append", s.append)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func (s *side) mark(seq uint64) string {
	if seq <= s.start || seq > uint64(len(s.log)) {
		return ""
	}
	return fmt.Sprintf("%d-%d", seq, s.log[seq-1].TimeNS)
}

func (s *side) peek(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from, err := strconv.ParseUint(r.FormValue("from"), 10, 64)
	if err != nil {
		from = s.start
	}
	limit, _ := strconv.Atoi(r.FormValue("limit"))
	out := edge.Peeked{Start: ident.Sequence(s.start), End: ident.Sequence(len(s.log)), Mark: s.mark(from), Messages: []edge.PeekedMessage{}}
	next := max(from, s.start)
	for ; len(out.Messages) < limit && next < uint64(len(s.log)); next++ {
		m := s.log[next]
		out.Messages = append(out.Messages, edge.PeekedMessage{Sequence: ident.Sequence(next), Time: m.TimeNS, Header: m.Header, Body: string(m.Body)})
	}
	out.Next, out.NextMark = ident.Sequence(next), s.mark(next)
	_ = json.NewEncoder(w).Encode(out)
}

func (s *side) append(w http.ResponseWriter, r *http.Request) {
	in := msgstream.NewMessageReader(r.Body)
	var all []msgstream.Message
	for {
		x, err := in.Next()
		if err == io.EOF {
			break
		}
		m := *x.Message
		m.Header, m.Body = slices.Clone(m.Header), slices.Clone(m.Body)
		all = append(all, m)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"sequence": s.add(all...)})
}

// add stores messages, at a time of their own.
func (s *side) add(all ...msgstream.Message) (first int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first = len(s.log)
	for _, m := range all {
		s.clock++
		m.TimeNS = s.clock
		s.log = append(s.log, m)
	}
	return first
}

// publish stores messages with these bodies.
func (s *side) publish(bodies ...string) {
	for _, b := range bodies {
		s.add(msgstream.Message{Body: []byte(b)})
	}
}

// restore puts a backup back: what came after its first messages is gone. The clock goes on.
func (s *side) restore(messages int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = s.log[:messages:messages]
}

// trim removes messages as retention does.
func (s *side) trim(start uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.start = start
}

func (s *side) bodies() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.log[s.start:] {
		all = append(all, string(m.Body))
	}
	return all
}

// numbered are n bodies that begin with a prefix.
func numbered(prefix string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(prefix, i))
	}
	return all
}

// mirrorTest is a mirror between two sides.
type mirrorTest struct {
	t          *testing.T
	east, west *side
	state      string
}

func newMirrorTest(t *testing.T) *mirrorTest {
	return &mirrorTest{t: t, east: newSide(t, "east", 7), west: newSide(t, "west", 8), state: filepath.Join(t.TempDir(), "state")}
}

func (m *mirrorTest) args(word string, flags ...string) []string {
	return append([]string{"mirror", word, "orders", "--from-http-address", m.east.Listener.Addr().String(), "--nsqd-http-address", m.west.Listener.Addr().String(), "--state", m.state}, flags...)
}

// copy runs the mirror until it has caught up, and returns what it said.
func (m *mirrorTest) copy() string {
	m.t.Helper()
	t := &cli.Target{}
	out, err := clitest.Run(m.t, cli.NewRoot(t, NewMirror(t)), wait.Limit, m.args("run", "--without-channels", "--until-caught-up", "--poll=1ms", "--batch=3")...)
	require.NoError(m.t, err, out)
	return out
}

// has requires that the target has the messages, each once and in their order.
func (m *mirrorTest) has(parts ...[]string) {
	m.t.Helper()
	require.Equal(m.t, slices.Concat(parts...), m.west.bodies())
}

// TestMirrorOfASourceThatWentBack: the source is restored from a backup, and has other messages since: fewer than
// it has lost, as many, or more. The mirror copies each of them once, with its state and without.
func TestMirrorOfASourceThatWentBack(t *testing.T) {
	t.Parallel()
	for _, more := range []int{0, 1, 6, 20} {
		for _, without := range []bool{false, true} {
			for _, equal := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d others, without the state %v, equal bodies %v", more, without, equal), func(t *testing.T) {
					t.Parallel()
					m := newMirrorTest(t)
					first, second, third := numbered("a", 10), numbered("b", more), numbered("c", 8)
					if equal {
						first, second, third = slices.Repeat([]string{"x"}, 10), slices.Repeat([]string{"x"}, more), slices.Repeat([]string{"x"}, 8)
					}
					m.east.publish(first...)
					require.NotContains(t, m.copy(), "lost")
					m.east.restore(4)
					m.east.publish(second...)
					if without {
						m.state = filepath.Join(t.TempDir(), "another")
					}
					out := m.copy()
					m.has(first, second)
					require.Contains(t, out, "the source has lost messages that were copied", "it says so")
					m.east.publish(third...)
					m.copy()
					m.has(first, second, third)
					m.state = filepath.Join(t.TempDir(), "another again")
					m.copy()
					m.has(first, second, third)
				})
			}
		}
	}
}

// TestMirrorOfATargetThatWentBack: the target is restored from a backup, and has other messages since. What it has
// lost is copied again.
func TestMirrorOfATargetThatWentBack(t *testing.T) {
	t.Parallel()
	for _, others := range []int{0, 3, 6, 20} {
		t.Run(fmt.Sprint(others), func(t *testing.T) {
			t.Parallel()
			m := newMirrorTest(t)
			first, own := numbered("a", 10), numbered("own", others)
			m.east.publish(first...)
			m.copy()
			m.west.restore(4)
			m.west.publish(own...)
			require.Contains(t, m.copy(), "the target has lost messages that were copied")
			m.has(first[:4], own, first[4:])
			m.copy()
			m.has(first[:4], own, first[4:])
		})
	}
}

// TestMirrorOfTrimmedLogs: what retention has removed on either side is not lost.
func TestMirrorOfTrimmedLogs(t *testing.T) {
	m := newMirrorTest(t)
	m.east.publish(numbered("a", 10)...)
	m.copy()
	m.east.trim(10)
	m.west.trim(10)
	m.east.publish("b")
	require.NotContains(t, m.copy(), "lost")
	m.has([]string{"b"})
	m.west.publish(numbered("own", 5)...)
	m.west.trim(14)
	require.NotContains(t, m.copy(), "lost")
	m.has([]string{"own3", "own4"})
}

// TestARunningMirrorNoticesALossWithoutPuts: both sides go back while the mirror runs and nothing is published.
func TestARunningMirrorNoticesALossWithoutPuts(t *testing.T) {
	t.Parallel()
	m := newMirrorTest(t)
	first := numbered("a", 10)
	m.east.publish(first...)
	target := &cli.Target{}
	r := clitest.Begin(t, cli.NewRoot(target, NewMirror(target)), m.args("run", "--without-channels", "--poll=1ms")...)
	wait.Until(t, func() bool { return len(m.west.bodies()) == 10 }, "the copies")
	m.west.restore(4)
	wait.Until(t, func() bool { return len(m.west.bodies()) == 10 }, "the copies, again")
	require.Contains(t, r.Said(), "the target has lost messages")
	m.has(first)
	m.east.restore(4)
	wait.Until(t, func() bool { return strings.Contains(r.Said(), "the source has lost messages") }, "the loss is noticed")
	m.east.publish("b")
	wait.Until(t, func() bool { return len(m.west.bodies()) == 11 }, "the new one")
	m.has(first, []string{"b"})
	r.Cancel()
	require.NoError(t, r.Ends())
}

// TestMirrorStatusOfASourceThatWentBack: it shows no lag of 0.
func TestMirrorStatusOfASourceThatWentBack(t *testing.T) {
	t.Parallel()
	m := newMirrorTest(t)
	m.east.publish(numbered("a", 10)...)
	m.copy()
	status := func() (string, error) {
		target := &cli.Target{}
		return clitest.Run(t, cli.NewRoot(target, NewMirror(target)), wait.Limit, m.args("status", "-o=json")...)
	}
	out, err := status()
	require.NoError(t, err)
	require.Contains(t, out, `"lag": 0`)
	m.east.restore(4)
	for range 2 {
		out, err = status()
		require.ErrorContains(t, err, "the source has lost messages")
		require.Contains(t, out, `"lag": null`)
		m.east.publish(numbered("b", 9)...)
	}
}
