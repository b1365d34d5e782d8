package attack

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/testkit/nsqtext"
)

// trio starts three brokers. The topic "orders" has one partition; relay is a broker that does not lead it.
func trio(t *testing.T, flags ...string) (relay, leader *broker) {
	var all []*broker
	members := ""
	for _, name := range []string{"n1", "n2", "n3"} {
		b := prepare(t, name, options{})
		all = append(all, b)
		members += fmt.Sprintf("%s=http://%s,", name, b.address(etcdPeerPort))
	}
	for _, b := range all {
		b.args = append(append(b.args, "--etcd-initial-cluster="+strings.TrimSuffix(members, ",")), flags...)
		b.run()
	}
	for _, b := range all {
		b.ready()
	}
	all[0].create("orders")
	led := ""
	all[0].until("orders has a leader", func() bool {
		var v api.ClusterView
		if json.Unmarshal([]byte(all[0].ask(bootstrap, "GET", "/v1/cluster", "").body), &v) != nil || len(v.Topics) == 0 {
			return false
		}
		led = string(v.Topics[0].Partitions[0].Leader)
		return led != ""
	})
	i := slices.IndexFunc(all, func(b *broker) bool { return b.name == led })
	relay, leader = all[(i+1)%3], all[i]
	relay.root = relay != all[0]
	return relay, leader
}

// others are the clients of another user at a broker that is attacked.
type others struct {
	puts, failed int
	slowest      time.Duration
}

func (o others) String() string {
	return fmt.Sprintf("%d of %d puts of another user OK, the slowest in %s", o.puts-o.failed, o.puts, ms(o.slowest))
}

// goOn publishes for another user by both protocols, on connections that are there and on new ones.
func (b *broker) goOn(token string, puts, bytes int) (o others) {
	b.t.Helper()
	body := strings.Repeat("m", bytes)
	c := b.client(b.t, token)
	for n := range puts {
		began := time.Now()
		var err error
		if n%2 == 0 {
			_ = c.conn.SetDeadline(time.Now().Add(limit))
			err = c.put("quiet", body)
		} else if a, failed := b.try(token, "POST", "/pub?topic=quiet", body); failed != nil || a.status != 200 {
			err = fmt.Errorf("%d %s %w", a.status, a.body, failed)
		}
		o.puts++
		o.slowest = max(o.slowest, time.Since(began))
		if err != nil {
			o.failed++
			b.t.Logf("a put of another user: %v", err)
		}
	}
	return o
}

// receives subscribes another user's consumer, publishes one message, and waits for it.
func (b *broker) receives(token, topic string, bytes int) (took time.Duration) {
	b.t.Helper()
	c := b.client(b.t, token)
	_, err := io.WriteString(c.conn, "SUB "+topic+" others\nRDY 1\n")
	require.NoError(b.t, err)
	_, text, err := c.next()
	expect(b.t, "OK", text, err)
	began := time.Now()
	require.Equal(b.t, 200, b.ask(token, "POST", "/pub?topic="+topic, strings.Repeat("m", bytes)).status)
	kind, text, err := c.next()
	require.NoError(b.t, err)
	require.EqualValues(b.t, 2, kind, "%.100q", text)
	_ = c.conn.Close()
	return time.Since(began)
}

// unread are consumers of one user that do not read: over TCP with RDY 2500, or as streams of events.
func (b *broker) unread(token, prefix string, n int, events bool) (all []net.Conn) {
	b.t.Helper()
	for i := range n {
		channel := fmt.Sprintf("%s%d", prefix, i)
		if events {
			conn, err := dial("", b.address(httpPort))
			require.NoError(b.t, err)
			_, err = fmt.Fprintf(conn, "POST /v1/consume?topic=orders&channel=%s&max_in_flight=2500 HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\nAuthorization: Bearer %s\r\nContent-Length: 0\r\n\r\n", channel, token)
			require.NoError(b.t, err)
			_ = conn.SetReadDeadline(time.Now().Add(limit))
			line, err := bufio.NewReaderSize(conn, 16).ReadString(' ')
			require.NoError(b.t, err, line)
			all = append(all, conn)
		} else {
			c := b.client(b.t, token)
			_, err := io.WriteString(c.conn, "SUB orders "+channel+"\n")
			require.NoError(b.t, err)
			_, text, err := c.next()
			expect(b.t, "OK", text, err)
			_, err = io.WriteString(c.conn, "RDY 2500\n")
			require.NoError(b.t, err)
			all = append(all, c.conn)
		}
	}
	b.t.Cleanup(func() {
		for _, conn := range all {
			_ = conn.Close()
		}
	})
	return all
}

// held is the memory that the clients of a broker hold, by its metrics.
func (b *broker) held() (bytes int64) {
	for line := range strings.Lines(b.ask(bootstrap, "GET", "/metrics", "").body) {
		var use string
		var n float64
		if _, err := fmt.Sscanf(line, "lockstep_client_memory_bytes{use=%q} %g", &use, &n); err == nil {
			bytes += int64(n)
		}
	}
	return bytes
}

// TestOneUserAmongOthers: consumers that do not read, bodies that trickle, and streams that nobody reads, all of one user.
// The broker's memory is bounded, other users publish and consume as before, and all memory comes back.
func TestOneUserAmongOthers(t *testing.T) {
	const budget, messages, size = 256 << 20, 640, 100 << 10
	relay, leader := trio(t)
	relay.create("quiet")
	slow := leader.user("slow", "orders", "consume,publish")
	shop := leader.user("shop", "quiet", "consume,publish")
	relay.until("the users are known", func() bool { return relay.ask(shop, "POST", "/pub?topic=quiet", "m").status == 200 })
	var figures []string
	figure := func(attack string, before int64, o others, consumed time.Duration) {
		figures = append(figures, fmt.Sprintf("| %s | %d MiB | %d MiB | %d MiB | %s | %s |", attack, before>>20, relay.peakMemory()>>20, relay.held()>>20, o, ms(consumed)))
		t.Log(figures[len(figures)-1])
		require.Zero(t, o.failed, attack)
		require.False(t, relay.ended() || leader.ended(), attack)
		require.Less(t, relay.peakMemory()-before, int64(2*budget), attack)
	}
	give := func(attack string, conns []net.Conn) {
		for _, conn := range conns {
			_ = conn.Close()
		}
		relay.until("the memory comes back after "+attack, func() bool { return relay.held() == 0 })
	}
	publish := func() {
		c := leader.client(t, slow)
		for range messages {
			_ = c.conn.SetDeadline(time.Now().Add(limit))
			require.NoError(t, c.put("orders", strings.Repeat("m", size)))
		}
	}
	counts := []int{0, 40} // 0: what the messages alone take
	if env.Long() {
		counts = []int{0, 40, 350}
	}
	for _, n := range counts {
		attack := fmt.Sprintf("%d consumers that do not read", n)
		relay.resetPeak()
		before := relay.memory()
		conns := relay.unread(slow, fmt.Sprintf("c%d-", n), n, false)
		publish()
		o := relay.goOn(shop, 200, 200<<10)
		figure(attack, before, o, relay.receives(shop, "quiet", 200<<10))
		give(attack, conns)
	}

	relay.resetPeak()
	before := relay.memory()
	streams := relay.unread(slow, "s", 150, true)
	publish()
	o := relay.goOn(shop, 200, 200<<10)
	figure("150 streams that nobody reads", before, o, relay.receives(shop, "quiet", 200<<10))
	give("the streams", streams)

	relay.resetPeak()
	before = relay.memory()
	trickling, stop := relay.trickle(slow, 140)
	o = relay.goOn(shop, 200, 200<<10)
	figure("140 bodies that trickle", before, o, relay.receives(shop, "quiet", 200<<10))
	stop()
	give("the bodies", trickling)
	t.Logf("figures:\n\n| one user | memory before | at most | held by clients | puts | a message |\n|---|---|---|---|---|---|\n%s\n", strings.Join(figures, "\n"))
}

// trickle begins bodies of almost 1 MiB by both protocols, and sends a byte of each a second until stop.
func (b *broker) trickle(token string, n int) (all []net.Conn, stop func()) {
	b.t.Helper()
	const size = 1<<20 - 1
	for i := range n {
		if i%2 == 0 {
			c := b.client(b.t, token)
			_, err := io.WriteString(c.conn, "PUB orders\n"+nsqtext.Sized(strings.Repeat("m", size))[:100])
			require.NoError(b.t, err)
			all = append(all, c.conn)
			continue
		}
		conn, err := dial("", b.address(httpPort))
		require.NoError(b.t, err)
		_, err = fmt.Fprintf(conn, "POST /pub?topic=orders HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\nmmm", token, size)
		require.NoError(b.t, err)
		all = append(all, conn)
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() { // until stop
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(time.Second):
			}
			for _, conn := range all {
				_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
				_, _ = io.WriteString(conn, "m") // the broker may have closed it
			}
		}
	}()
	return all, func() { close(end); <-ended }
}

// TestLoginsAfterARestart: 200 clients log in at the same moment, as soon as a broker listens after its start, alongside
// strangers of the same address who try bad tokens. None is refused.
func TestLoginsAfterARestart(t *testing.T) {
	address, _ := service(t)
	b := start(t, options{flags: []string{"--auth-http-address=" + address}})
	b.create("orders")
	var tokens []string
	for i := range 4 {
		tokens = append(tokens, b.user(fmt.Sprintf("shop%d", i), "orders", "publish"))
	}
	b.terminate()
	b.run()
	b.until("the port is open", func() bool {
		conn, err := dial("", b.address(tcpPort))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	began := time.Now()
	var strangers, clients sync.WaitGroup
	var bad atomic.Int64
	over := make(chan struct{})
	for worker := range 8 {
		strangers.Go(func() {
			for i := worker; ; i += 8 {
				select {
				case <-over:
					return
				default:
				}
				name, secret, _ := strings.Cut(tokens[i%4], ".")
				if c, err := b.connect(""); err == nil {
					if _, err := c.command("AUTH", fmt.Sprintf("%s.%0*d", name, len(secret), i)); err == nil {
						bad.Add(1)
					}
					_ = c.conn.Close()
				}
			}
		})
	}
	const logins = 200
	errs := make([]error, logins)
	took := make([]time.Duration, logins)
	for i := range logins {
		clients.Go(func() {
			began := time.Now()
			if i%2 == 0 {
				errs[i] = b.logsIn(tokens[i%4])
			} else {
				web := &http.Client{Timeout: limit}
				defer web.CloseIdleConnections()
				a, err := request(web, tokens[i%4], "POST", "http://"+b.address(httpPort)+"/pub?topic=orders", "m")
				if errs[i] = err; err == nil && a.status != 200 {
					errs[i] = fmt.Errorf("%d %s", a.status, a.body)
				}
			}
			took[i] = time.Since(began)
		})
	}
	clients.Wait()
	all := time.Since(began)
	close(over)
	strangers.Wait()
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
			t.Log(err)
		}
	}
	t.Logf("%d of %d logins in %s after the port was open, the slowest in %s, beside %d bad ones", logins-failed, logins, all.Round(time.Millisecond), ms(slices.Max(took)), bad.Load())
	require.Zero(t, failed)
	require.NotZero(t, bad.Load())
}

// logsIn logs a client in over TCP, and publishes.
func (b *broker) logsIn(token string) error {
	c, err := b.connect("")
	if err != nil {
		return err
	}
	defer c.conn.Close()
	text, err := c.command("AUTH", token)
	if err == nil && !strings.Contains(text, `"identity"`) {
		err = fmt.Errorf("%s", text)
	}
	if err == nil {
		err = c.put("orders", "m")
	}
	return err
}

// TestMemoryComesBack: clients that break off in the middle of everything, with large bodies and messages. When they have gone,
// no memory and no goroutine of theirs is left.
func TestMemoryComesBack(t *testing.T) {
	b := start(t, options{})
	b.create("orders")
	token := b.user("shop", "orders", "consume,publish")
	large := strings.Repeat("m", 300<<10)
	c := b.client(t, token)
	for range 20 {
		require.NoError(t, c.put("orders", large))
	}
	_ = c.conn.Close()
	for range 5 { // what the broker keeps for later
		_ = b.held()
	}
	before := b.goroutines()
	login := "  V2AUTH\n" + nsqtext.Sized(token)
	negotiate := func(how string) string {
		return "IDENTIFY\n" + nsqtext.Sized(`{"feature_negotiation":true,"`+how+`":true}`)
	}
	request := func(line, headers, body string) string {
		return line + " HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + token + "\r\n" + headers + "\r\n" + body
	}
	length := func(n int) string { return fmt.Sprintf("Content-Length: %d\r\n", n) }
	const chunked = "Transfer-Encoding: chunked\r\n"
	piece := fmt.Sprintf("%x\r\n%s\r\n", len(large), large)
	tcp := []string{
		login + "PUB orders\n" + nsqtext.Sized(large),
		login + "PUB orders\n" + nsqtext.Sized(large)[:200<<10],
		login + "DPUB orders 60000\n" + nsqtext.Sized(large)[:200<<10],
		login + "MPUB orders\n" + nsqtext.Sized("\x00\x00\x00\x02" + nsqtext.Sized(large) + nsqtext.Sized("m"))[:250<<10],
		login + "MPUB orders\n" + nsqtext.Sized("\x00\x00\x00\x02"+nsqtext.Sized(large)+"\xff\xff\xff\xff"),
		login + "PUB_EXT orders\n" + nsqtext.Sized("\xff\xff"+large),
		login + "PUB nothing\n" + nsqtext.Sized(large) + "PUB orders\n" + nsqtext.Sized(large),
		login + strings.Repeat("PUB orders\n"+nsqtext.Sized("m"), 2000),
		login + strings.Repeat("DPUB orders 99999999999\n"+nsqtext.Sized("m"), 2000),
		login + "SUB orders a\nRDY 100\n",
		login + "SUB orders b#ephemeral\nRDY 1\n",
		login + negotiate("deflate") + "SUB orders c\nRDY 100\n", // the rest is no deflate
		login + negotiate("snappy") + large,
		"  V2" + negotiate("deflate"),
	}
	web := []string{
		request("POST /pub?topic=orders", length(len(large)), large),
		request("POST /pub?topic=orders", length(len(large)), large[:100<<10]),
		request("POST /pub?topic=orders", chunked, piece),
		request("POST /pub?topic=orders", chunked, piece+"xyz"),
		request("POST /pub?topic=nothing", length(len(large)), large),
		request("POST /mpub?topic=orders&binary=true", length(len(large)), large),
		request("POST /mpub?topic=orders", chunked, piece),
		request("POST /v1/topic/append?topic=orders&partition=0", length(len(large)), large),
		request("POST /v1/topic/append?topic=orders&partition=0", chunked, piece+"0\r\n\r\n"),
		request("POST /v1/consume?topic=orders&channel=d&max=20&wait=1s", length(0), ""),
		request("POST /v1/consume?topic=orders&channel=e&max=20", "Accept: multipart/mixed\r\n"+length(0), ""),
		request("POST /v1/consume?topic=orders&channel=f", "Accept: text/event-stream\r\n"+length(0), ""),
		request("POST /v1/finish?topic=orders&channel=d", length(len(large)), large),
		request("POST /v1/finish?topic=orders&channel=d", length(len(large)), large[:100<<10]),
		strings.Repeat(request("GET /v1/topic/peek?topic=orders&partition=0&limit=20", "", ""), 5),
	}
	rounds := 2
	if env.Long() {
		rounds = 20
	}
	var clients sync.WaitGroup
	opened := 0
	for round := range rounds {
		for _, at := range []struct {
			port int
			say  []string
		}{{tcpPort, tcp}, {httpPort, web}} {
			for i, say := range at.say {
				opened++
				clients.Go(func() {
					conn, err := dial("", b.address(at.port))
					if err != nil {
						return
					}
					defer conn.Close()
					_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
					_, _ = io.WriteString(conn, say) // the broker may end it within
					if (i+round)%3 == 0 {
						_, _ = io.CopyN(io.Discard, conn, 64<<10)
					} else {
						pause(time.Duration(i+round) * 3 * time.Millisecond)
					}
				})
			}
		}
		clients.Wait()
	}
	b.until("the memory comes back", func() bool { return b.held() == 0 })
	b.until("the goroutines end", func() bool { return b.goroutines() <= before+10 })
	t.Logf("%d clients that broke off: %d goroutines before, %d afterwards, %d MiB", opened, before, b.goroutines(), b.memory()>>20)
	require.Equal(t, 200, b.ask(token, "POST", "/pub?topic=orders", large).status)
}

// goroutines counts those of the process.
func (b *broker) goroutines() (n int) {
	for line := range strings.Lines(b.ask(bootstrap, "GET", "/metrics", "").body) {
		if _, err := fmt.Sscanf(line, "go_goroutines %d", &n); err == nil {
			return n
		}
	}
	b.t.Fatal("no metric has the goroutines")
	return 0
}
