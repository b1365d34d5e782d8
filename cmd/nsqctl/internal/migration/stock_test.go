package migration

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
)

// fake answers as an nsqd or an nsqlookupd, and records the changes.
type fake struct {
	*httptest.Server
	mu      sync.Mutex
	answers map[string]string // by path
	changes []string
}

func newFake(t *testing.T, answers map[string]string) *fake {
	f := &fake{answers: answers}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		text, there := f.answers[r.URL.Path]
		switch {
		case r.Method == http.MethodPost:
			f.changes = append(f.changes, strings.TrimPrefix(r.URL.String(), "/"))
		case there:
			_, _ = w.Write([]byte(text))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) address() string { return f.Listener.Addr().String() }

const stats = `{"topics":[
	{"topic_name":"orders","depth":3,"channels":[{"channel_name":"billing","depth":2,"in_flight_count":1,"deferred_count":1},{"channel_name":"tail#ephemeral"}]},
	{"topic_name":"empty","channels":[]},
	{"topic_name":"short#ephemeral","channels":[{"channel_name":"x"}]}],
	"producers":[{"client_id":"p"}]}`

// TestReadsThroughLookup: nsqds and channels of the nsqlookupd, without ephemeral ones.
func TestReadsThroughLookup(t *testing.T) {
	n := newFake(t, map[string]string{"/info": `{"version":"1.3.0","tcp_port":7}`, "/stats": stats})
	host, port, _ := net.SplitHostPort(n.address())
	lookup := newFake(t, map[string]string{
		"/nodes":    fmt.Sprintf(`{"producers":[{"broadcast_address":%q,"http_port":%s,"tcp_port":4150}]}`, host, port),
		"/topics":   `{"topics":["orders","elsewhere"]}`,
		"/channels": `{"channels":["audit","x#ephemeral"]}`,
	})
	c, err := stockSource{Lookupds: []string{lookup.address()}, HTTP: http.DefaultClient}.read(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"elsewhere", "empty", "orders"}, c.topics())
	require.Equal(t, []string{"audit", "billing"}, c.Channels["orders"])
	require.Equal(t, []string{"audit", "billing"}, c.expected(topicOf(t, c, "orders")), "each channel belongs on each nsqd")
	require.Equal(t, host+":4150", c.Nodes[0].TCP)
	require.Equal(t, []string{"orders/tail#ephemeral", "short#ephemeral"}, c.Nodes[0].Ephemeral)
	require.Len(t, c.Nodes[0].Producers, 1)
}

// TestReadsNSQDs: without nsqlookupd each nsqd has its own channels.
func TestReadsNSQDs(t *testing.T) {
	n := newFake(t, map[string]string{"/info": `{"version":"1.3.0","tcp_port":7}`, "/stats": stats})
	c, err := stockSource{NSQDs: []string{"http://" + n.address()}, HTTP: http.DefaultClient}.read(t.Context())
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:7", c.Nodes[0].TCP)
	require.Equal(t, []string{"billing"}, c.expected(topicOf(t, c, "orders")))
	require.Empty(t, c.expected(topicOf(t, c, "empty")))
}

// TestRefuses: an incomplete topology, and brokers of Lockstep.
func TestRefuses(t *testing.T) {
	n := newFake(t, map[string]string{"/info": `{"tcp_port":7}`, "/stats": stats})
	for want, address := range map[string]string{
		"nsqd 127.0.0.1:1:":                    "127.0.0.1:1",
		"this is not the answer of NSQ":        newFake(t, map[string]string{"/info": `hello`}).address(),
		"GET /info: 404 Not Found":             newFake(t, nil).address(),
		"GET /stats: 404 Not Found":            newFake(t, map[string]string{"/info": `{}`}).address(),
		"this is a broker of Lockstep: messag": newFake(t, map[string]string{"/info": `{}`, "/v1/cluster": `{}`}).address(),
	} {
		_, err := stockSource{NSQDs: []string{n.address(), address}, HTTP: http.DefaultClient}.read(t.Context())
		require.ErrorContains(t, err, want)
	}
}

// TestPrepare: the first channel of a topic would get all of its messages, so the topic is paused until all channels exist.
func TestPrepare(t *testing.T) {
	n := newFake(t, nil)
	s, node := stockSource{HTTP: http.DefaultClient}, stockNode{HTTP: n.address()}
	require.NoError(t, s.prepareTopic(t.Context(), node, api.TopicStats{TopicName: "t"}, []string{"a", "b"}))
	require.NoError(t, s.prepareTopic(t.Context(), node, api.TopicStats{TopicName: "t", Channels: []api.ChannelStats{{ChannelName: "a"}}}, []string{"a", "b"}))
	require.NoError(t, s.prepareTopic(t.Context(), node, api.TopicStats{TopicName: "p", Paused: true}, []string{"a"}))
	require.NoError(t, s.prepareTopic(t.Context(), node, api.TopicStats{TopicName: "t"}, nil))
	require.Equal(t, []string{
		"topic/pause?topic=t", "channel/create?channel=a&topic=t", "channel/create?channel=b&topic=t", "topic/unpause?topic=t",
		"channel/create?channel=b&topic=t", "channel/create?channel=a&topic=p",
	}, n.changes)
}

func topicOf(t *testing.T, c *stockCluster, name string) api.TopicStats {
	i := slices.IndexFunc(c.Nodes[0].Topics, func(x api.TopicStats) bool { return x.TopicName == name })
	require.GreaterOrEqual(t, i, 0)
	return c.Nodes[0].Topics[i]
}
