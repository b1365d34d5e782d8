package transfer

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/msgstream"
	"github.com/lockstepmq/lockstep/internal/ident"
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

	most      int64 // bytes of a body; 0: no limit
	channels  []api.ChannelView
	positions []api.ChannelPosition
	finished  []string // the spans of POST /v1/channel/finish
	peeked    func()   // called once, behind a peek; nil: nothing happens
	electing  int      // so many peeks are refused: the partition has no serving leader yet
	late      lateCopies
}

// lateCopies are an earlier mirror's put, which comes before the next one.
type lateCopies struct {
	messages []msgstream.Message
	instead  bool // the next one is in doubt, and not stored
}

func newSide(t *testing.T, name string, id ident.TopicID) *side {
	s := &side{name: name, id: id}
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/cluster", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.ClusterView{Cluster: name, Brokers: []api.BrokerView{{Name: ident.Node(name), Alive: true}},
			Topics: []api.TopicView{{Topic: "orders", ID: id, Partitions: []api.PartitionView{{Leader: ident.Node(name)}}}}})
	})
	mux.HandleFunc("/v1/topic/peek", s.peek)
	mux.HandleFunc("/v1/topic/append", s.append)
	s.channelRoutes(mux)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// channelRoutes adds the routes about channels. Every channel has one position.
func (s *side) channelRoutes(mux *http.ServeMux) {
	mux.HandleFunc("/v1/topic/channels", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"channels": s.channels})
	})
	mux.HandleFunc("/v1/topic/positions", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"positions": s.positions})
	})
	mux.HandleFunc("/v1/channel/policy", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	mux.HandleFunc("/channel/create", func(_ http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.channels = append(s.channels, api.ChannelView{Channel: r.FormValue("channel"), Ordered: r.FormValue("ordered") == "true"})
		s.positions = append(s.positions, api.ChannelPosition{Channel: r.FormValue("channel"), Confirmed: ident.Sequence(s.start)})
	})
	mux.HandleFunc("/v1/channel/finish", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.finished = append(s.finished, r.FormValue("channel")+" "+strings.Join(r.Form["span"], " "))
		_ = json.NewEncoder(w).Encode(api.FinishedElsewhere{})
	})
}

// mark identifies the log as a broker does: the times of this one never repeat.
func (s *side) mark(seq uint64) string {
	if seq <= s.start || seq > uint64(len(s.log)) {
		return ""
	}
	return fmt.Sprintf("%d-%d", seq, s.log[seq-1].TimeNS)
}

func (s *side) peek(w http.ResponseWriter, r *http.Request) {
	defer s.then()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.electing > 0 {
		s.electing--
		http.Error(w, `{"message":"the broker does not serve as the leader of partition 0"}`, http.StatusServiceUnavailable)
		return
	}
	from, err := strconv.ParseUint(r.FormValue("from"), 10, 64)
	if err != nil {
		from = s.start
	}
	limit, _ := strconv.Atoi(r.FormValue("limit"))
	out := api.Peeked{Start: ident.Sequence(s.start), End: ident.Sequence(len(s.log)), Mark: s.mark(from), Messages: []api.PeekedMessage{}}
	next := max(from, s.start)
	for ; len(out.Messages) < limit && next < uint64(len(s.log)); next++ {
		m := s.log[next]
		out.Messages = append(out.Messages, api.PeekedMessage{Sequence: ident.Sequence(next), Time: m.TimeNS, Header: m.Header, Body: string(m.Body)})
	}
	out.Next, out.NextMark = ident.Sequence(next), s.mark(next)
	_ = json.NewEncoder(w).Encode(out)
}

// then does what the test has for the moment behind a peek.
func (s *side) then() {
	s.mu.Lock()
	then := s.peeked
	s.peeked = nil
	s.mu.Unlock()
	if then != nil {
		then()
	}
}

func (s *side) append(w http.ResponseWriter, r *http.Request) {
	if s.most > 0 && r.ContentLength > s.most {
		http.Error(w, `{"message":"BODY_TOO_BIG"}`, http.StatusRequestEntityTooLarge)
		return
	}
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
	s.mu.Lock()
	late := s.late
	s.late = lateCopies{}
	s.mu.Unlock()
	if s.add(late.messages...); late.instead {
		http.Error(w, `{"message":"in doubt, may be stored"}`, http.StatusGatewayTimeout)
		return
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

// restore puts a backup back: later messages are gone. The clock continues.
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
