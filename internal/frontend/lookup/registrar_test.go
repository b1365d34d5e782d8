package lookup

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// daemon implements the TCP commands of nsqlookupd that a broker uses.
type daemon struct {
	l        net.Listener
	httpPort int
	host     string
	wg       sync.WaitGroup

	mu struct {
		sync.Mutex
		identities []Identity
		conns      map[net.Conn]map[string]bool // registrations by connection
		pings      int
		refuse     string // a command that is answered with an error
	}
}

func newDaemon(t *testing.T, httpPort int) *daemon {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := &daemon{l: l, httpPort: httpPort, host: "127.0.0.1"}
	d.mu.conns = map[net.Conn]map[string]bool{}
	d.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			d.wg.Go(func() { d.serve(conn) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); d.hangUp(); d.wg.Wait() })
	return d
}

// hangUp closes all connections.
func (d *daemon) hangUp() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for conn := range d.mu.conns {
		_ = conn.Close()
	}
}

func (d *daemon) serve(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		d.mu.Lock()
		delete(d.mu.conns, conn)
		d.mu.Unlock()
	}()
	d.mu.Lock()
	d.mu.conns[conn] = map[string]bool{}
	d.mu.Unlock()
	r := bufio.NewReader(conn)
	magic := make([]byte, 4)
	if _, err := io.ReadFull(r, magic); err != nil || string(magic) != "  V1" {
		return
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		answer := d.command(conn, r, strings.TrimSpace(line))
		_, _ = conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(answer))), answer...))
	}
}

func (d *daemon) command(conn net.Conn, r io.Reader, line string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	verb, what, _ := strings.Cut(line, " ")
	if verb == d.mu.refuse {
		return "E_INVALID " + line
	}
	switch verb {
	case "IDENTIFY":
		var size uint32
		_ = binary.Read(r, binary.BigEndian, &size)
		body := make([]byte, size)
		_, _ = io.ReadFull(r, body)
		var id Identity
		_ = json.Unmarshal(body, &id)
		d.mu.identities = append(d.mu.identities, id)
		reply, _ := json.Marshal(Identity{BroadcastAddress: d.host, HTTPPort: d.httpPort, TCPPort: 1, Version: "1.3.0"})
		return string(reply)
	case "REGISTER":
		d.mu.conns[conn][what] = true
	case "UNREGISTER":
		delete(d.mu.conns[conn], what)
	case "PING":
		d.mu.pings++
	}
	return "OK"
}

func (d *daemon) registered() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []string
	for _, set := range d.mu.conns {
		for r := range set {
			all = append(all, r)
		}
	}
	slices.Sort(all)
	return all
}

type source struct {
	sync.Mutex
	topics map[string][]string
}

func (s *source) get() (list []api.TopicStats) {
	s.Lock()
	defer s.Unlock()
	for topic, channels := range s.topics {
		t := api.TopicStats{TopicName: topic}
		for _, c := range channels {
			t.Channels = append(t.Channels, api.ChannelStats{ChannelName: c})
		}
		list = append(list, t)
	}
	return list
}

func (s *source) set(t map[string][]string) { s.Lock(); s.topics = t; s.Unlock() }

func options(s *source) Options {
	log := logrus.New()
	log.SetOutput(io.Discard)
	return Options{
		Identity: Identity{Version: "1.3.0", TCPPort: 4150, HTTPPort: 4151, BroadcastAddress: "b", Hostname: "h"},
		Topics:   s.get, Refresh: 5 * time.Millisecond, Ping: 10 * time.Millisecond, Log: log,
	}
}

func eventually(t *testing.T, f func() bool) {
	t.Helper()
	wait.Until(t, f, "the daemon has what the broker sends")
}

func TestRegistersWhatTheSourceSays(t *testing.T) {
	d := newDaemon(t, 0)
	s := &source{topics: map[string][]string{"t": {"c1", "c2"}, "empty": nil}}
	o := options(s)
	o.Refresh = time.Hour // only Notify updates
	r := New(o, []string{d.l.Addr().String()})
	defer r.Close()
	eventually(t, func() bool { return slices.Equal(d.registered(), []string{"empty", "t", "t c1", "t c2"}) })
	require.Equal(t, o.Identity, d.mu.identities[0])
	s.set(map[string][]string{"t": {"c2"}, "new": nil})
	r.Notify()
	eventually(t, func() bool { return slices.Equal(d.registered(), []string{"new", "t", "t c2"}) })
}

func TestReconnectsAndPings(t *testing.T) {
	d := newDaemon(t, 0)
	s := &source{topics: map[string][]string{"t": {"c"}}}
	r := New(options(s), []string{d.l.Addr().String()})
	defer r.Close()
	want := []string{"t", "t c"}
	eventually(t, func() bool { return slices.Equal(d.registered(), want) })
	d.hangUp()
	eventually(t, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.mu.identities) >= 2 && d.mu.pings > 0
	})
	eventually(t, func() bool { return slices.Equal(d.registered(), want) })
}

// A refusal closes the connection; the peer retries.
func TestRefusal(t *testing.T) {
	d := newDaemon(t, 0)
	d.mu.refuse = "REGISTER"
	r := New(options(&source{topics: map[string][]string{"t": nil}}), []string{d.l.Addr().String()})
	defer r.Close()
	eventually(t, func() bool { d.mu.Lock(); defer d.mu.Unlock(); return len(d.mu.identities) >= 2 })
	d.mu.Lock()
	d.mu.refuse = ""
	d.mu.Unlock()
	eventually(t, func() bool { return slices.Equal(d.registered(), []string{"t"}) })
}

func TestSetAddresses(t *testing.T) {
	first, second := newDaemon(t, 0), newDaemon(t, 0)
	r := New(options(&source{topics: map[string][]string{"t": nil}}), []string{first.l.Addr().String()})
	defer r.Close()
	eventually(t, func() bool { return len(first.registered()) == 1 })
	r.SetAddresses([]string{second.l.Addr().String()})
	eventually(t, func() bool { return len(first.registered()) == 0 && len(second.registered()) == 1 })
}

func TestChannels(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"channels":["b","a","`+r.URL.Query().Get("topic")+`"]}`)
	}))
	defer web.Close()
	d := newDaemon(t, web.Listener.Addr().(*net.TCPAddr).Port)
	r := New(options(&source{topics: map[string][]string{"t": nil}}), []string{d.l.Addr().String()})
	defer r.Close()
	eventually(t, func() bool { return len(d.registered()) == 1 })
	channels, err := r.Channels(t.Context(), "x#ephemeral")
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "x#ephemeral"}, channels)
}

// TestAddresses: so many, and each host:port alone.
func TestAddresses(t *testing.T) {
	require.NoError(t, Validate(nil))
	require.NoError(t, Validate([]string{"lookup-1.example:4160", "10.0.0.1:4160", "[2001:db8::1]:4160", "a_b:1"}))
	require.NoError(t, Validate(slices.Repeat([]string{"a:1"}, maxAddresses)))
	require.ErrorIs(t, Validate(slices.Repeat([]string{"a:1"}, maxAddresses+1)), errInvalid)
	for _, bad := range []string{"", "a", "a:", "a:0", "a:65536", "a:http", ":4160", "http://a:4160", "a/b:1", "u@a:1", "a?b:1", "a b:1", "a\n:1", strings.Repeat("a", 254) + ":1"} {
		require.ErrorIs(t, Validate([]string{bad}), errInvalid, bad)
	}
}

// TestAFalseDaemon: a daemon that redirects, names itself by a URL, or names too many channels
// directs no request elsewhere, and takes registrations nonetheless.
func TestAFalseDaemon(t *testing.T) {
	asked := make(chan string, 10)
	inner := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.String() }))
	defer inner.Close()
	redirects := httptest.NewServer(http.RedirectHandler(inner.URL+"/secret", http.StatusTemporaryRedirect))
	defer redirects.Close()
	many := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var channels []string
		for i := range 2 * maxChannels {
			channels = append(channels, fmt.Sprintf("c%04d", i), "not a name", strings.Repeat("x", 100))
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"channels": channels})
	}))
	defer many.Close()
	port := func(s *httptest.Server) int { return s.Listener.Addr().(*net.TCPAddr).Port }
	s := &source{topics: map[string][]string{"t": nil}}
	for name, test := range map[string]struct {
		host string
		port int
		says string
		want int
	}{
		"redirects":   {"127.0.0.1", port(redirects), "status 307", 0},
		"names a URL": {"127.0.0.1:1/x", port(inner), "", 0},
		"many":        {"127.0.0.1", port(many), "the daemons name 512 channels, this broker takes 256", maxChannels},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, test.port)
			d.host = test.host
			r := New(options(s), []string{d.l.Addr().String()})
			defer r.Close()
			eventually(t, func() bool { return slices.Equal(d.registered(), []string{"t"}) })
			channels, err := r.Channels(t.Context(), "t")
			require.Len(t, channels, test.want)
			if test.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.says)
			}
		})
	}
	require.Empty(t, asked)
}
