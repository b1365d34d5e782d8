package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

const (
	limit     = 30 * time.Second       // of any condition
	endLimit  = 10 * time.Second       // of a stop
	pollEvery = 5 * time.Millisecond   // between two looks at a condition
	notYet    = 500 * time.Millisecond // for something that must not happen

	portsFrom, portsTo = 24000, 24990 // below the ephemeral ones of Linux
	portsPerBroker     = 10
)

// The ports of a broker, as distances from its first.
const (
	tcpPort = iota
	httpPort
	httpsPort
	rpcPort
	etcdPort
	etcdPeerPort
	lookupPort
)

// bootstrap is the token of --bootstrap-admin-token-file.
const bootstrap = "an-attacker-does-not-know-this-token-of-the-administrator"

// options say how a broker of a test starts.
type options struct {
	open  bool   // without the bootstrap token: everybody may do everything until there is a user
	tls   bool   // TLS at all ports, and for clients required
	files int    // limit of open files; 0: the test's
	level string // of the log; "" = info
	flags []string
	env   []string
}

// broker is one nsqd process.
type broker struct {
	t    testing.TB
	name string
	base int
	dir  string
	log  string // file
	ca   *certs.Authority
	o    options
	cmd  *exec.Cmd
	done chan struct{}
	http *http.Client
	args []string
	root bool // the first administrator is made: no other user may come before
}

// start runs a single broker on an empty directory until it is ready.
func start(t testing.TB, o options) *broker {
	t.Helper()
	b := prepare(t, "n1", o)
	b.run()
	b.ready()
	return b
}

// prepare chooses ports, directories and the flags of a broker that is not started.
func prepare(t testing.TB, name string, o options) *broker {
	t.Helper()
	if testing.Short() {
		t.Skip("starts broker processes; left out with -short")
	}
	b := &broker{t: t, name: name, base: freePorts(t), dir: filepath.Join(t.TempDir(), "data"), o: o}
	b.log = filepath.Join(t.TempDir(), name+".log")
	b.http = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	b.args = []string{
		"--node-name=" + name, "--broadcast-address=127.0.0.1", "--data-path=" + b.dir,
		"--tcp-address=" + b.address(tcpPort), "--http-address=" + b.address(httpPort), "--https-address=" + b.address(httpsPort),
		"--rpc-address=" + b.address(rpcPort), "--etcd-client-address=" + b.address(etcdPort), "--etcd-peer-address=" + b.address(etcdPeerPort),
		"--lookupd-http-address=" + b.address(lookupPort), "--log-level=" + cmpOr(o.level, "info"),
	}
	if !o.open {
		token := filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(token, []byte(bootstrap+"\n"), 0o600))
		b.args = append(b.args, "--bootstrap-admin-token-file="+token)
	}
	if o.tls {
		b.trust(certs.New(t))
	}
	b.args = append(b.args, o.flags...)
	return b
}

func cmpOr(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// trust gives the broker TLS at all ports, with certificates of an authority.
func (b *broker) trust(ca *certs.Authority) {
	b.ca = ca
	ca.Issue(b.name)
	b.args = append(b.args,
		"--tls-cert="+ca.File(b.name+".pem"), "--tls-key="+ca.File(b.name+".key"), "--tls-required=true",
		"--rpc-tls-cert="+ca.File(b.name+".pem"), "--rpc-tls-key="+ca.File(b.name+".key"), "--rpc-tls-ca="+ca.File("ca.pem"))
	b.http.Transport.(*http.Transport).TLSClientConfig = ca.Client("")
}

// run starts the process.
func (b *broker) run() {
	b.t.Helper()
	b.cmd = exec.Command(program("nsqd"), b.args...)
	if b.o.files != 0 {
		b.cmd = exec.Command("sh", append([]string{"-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, b.o.files), program("nsqd")}, b.args...)...)
	}
	b.cmd.Env = append(os.Environ(), b.o.env...)
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(b.log)
	require.NoError(b.t, err)
	b.cmd.Stderr, b.cmd.Stdout = log, log
	require.NoError(b.t, b.cmd.Start())
	_ = log.Close() // the process has its own descriptor
	done, cmd := make(chan struct{}), b.cmd
	b.done = done
	go func() { // ends with the process
		_ = cmd.Wait()
		close(done)
	}()
	b.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended already
		<-done
		b.http.CloseIdleConnections()
		if crash := clusters.Crash(b.log); crash != "" {
			b.t.Errorf("%s.log: %s", b.name, crash)
		}
		if b.t.Failed() {
			b.t.Logf("%s.log ends:\n%s", b.name, tail(b.logged(), 4<<10))
		}
	})
}

func tail(text string, n int) string { return text[max(0, len(text)-n):] }

// ended reports whether the process has ended.
func (b *broker) ended() bool {
	select {
	case <-b.done:
		return true
	default:
		return false
	}
}

// ready waits until the broker serves.
func (b *broker) ready() {
	b.t.Helper()
	b.until("the broker is ready", func() bool {
		if b.ended() {
			b.t.Fatalf("nsqd ended: %s", tail(b.logged(), 2<<10))
		}
		return b.isReady()
	})
}

// isReady asks /readyz once.
func (b *broker) isReady() bool {
	resp, err := b.http.Get("http://" + b.address(httpPort) + "/readyz")
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (b *broker) address(port int) string { return fmt.Sprintf("127.0.0.1:%d", b.base+port) }

func (b *broker) logged() string {
	text, _ := os.ReadFile(b.log)
	return string(text)
}

// terminate sends SIGTERM, and requires an orderly end in time.
func (b *broker) terminate() (took time.Duration) {
	b.t.Helper()
	began := time.Now()
	require.NoError(b.t, b.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-b.done:
	case <-time.After(env.Within(b.t, endLimit)):
		b.t.Fatalf("the broker runs %s after SIGTERM", time.Since(began))
	}
	took = time.Since(began)
	require.Zero(b.t, b.cmd.ProcessState.ExitCode(), "exit code after SIGTERM")
	return took
}

func (b *broker) until(what string, condition func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(limit); !condition(); pause(pollEvery) {
		if time.Now().After(deadline) {
			b.t.Fatalf("waited %s in vain until %s", limit, what)
		}
	}
}

// pause is the time between two looks at a condition.
func pause(d time.Duration) { <-time.After(d) }

// answer is the answer to a request.
type answer struct {
	status int
	body   string
}

// ask makes a request with a token ("" = none) at the HTTP port, or with TLS at the HTTPS port.
func (b *broker) ask(token, method, path, body string, headers ...string) answer {
	b.t.Helper()
	a, err := b.try(token, method, path, body, headers...)
	require.NoError(b.t, err)
	return a
}

func (b *broker) try(token, method, path, body string, headers ...string) (answer, error) {
	url := "http://" + b.address(httpPort) + path
	if b.ca != nil {
		url = "https://" + b.address(httpsPort) + path
	}
	return request(b.http, token, method, url, body, headers...)
}

func request(c *http.Client, token, method, url, body string, headers ...string) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, string(text)}, err
}

// user makes a user with rights on the topics of a pattern, and gives its token.
func (b *broker) user(name, topic, rights string) string {
	b.t.Helper()
	if !b.root {
		a := b.ask(bootstrap, "POST", "/v1/user/create?name=root&admin=true", "")
		require.Equal(b.t, 200, a.status, a.body)
		b.root = true
	}
	a := b.ask(bootstrap, "POST", "/v1/user/create?name="+name, "")
	require.Equal(b.t, 200, a.status, a.body)
	var made httpapi.NewToken
	require.NoError(b.t, json.Unmarshal([]byte(a.body), &made))
	if topic != "" {
		a = b.ask(bootstrap, "POST", "/v1/acl/grant?user="+name+"&topic="+topic+"&rights="+rights, "")
		require.Equal(b.t, 200, a.status, a.body)
	}
	return made.Token
}

// create makes a topic, with the administrator's token.
func (b *broker) create(topic string) {
	b.t.Helper()
	b.until("the topic "+topic+" is made", func() bool {
		return b.ask(bootstrap, "POST", "/topic/create?topic="+topic, "").status == 200
	})
}

// topics lists the topics of the cluster.
func (b *broker) topics() string {
	b.t.Helper()
	a := b.ask(bootstrap, "GET", "/topics", "")
	require.Equal(b.t, 200, a.status, a.body)
	return a.body
}

// messages counts the messages of a topic since the start of the broker.
func (b *broker) messages(topic string) int {
	b.t.Helper()
	a := b.ask(bootstrap, "GET", "/stats?format=json&topic="+topic, "")
	require.Equal(b.t, 200, a.status, a.body)
	var s struct {
		Topics []struct {
			MessageCount int `json:"message_count"`
		}
	}
	require.NoError(b.t, json.Unmarshal([]byte(a.body), &s))
	if len(s.Topics) == 0 {
		return 0
	}
	return s.Topics[0].MessageCount
}

// memory is the resident memory of the process in bytes.
func (b *broker) memory() int64 { return b.status("VmRSS:") << 10 }

// peakMemory is its greatest resident memory since the start, or since resetPeak.
func (b *broker) peakMemory() int64 { return b.status("VmHWM:") << 10 }

func (b *broker) resetPeak() {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", b.cmd.Process.Pid), []byte("5"), 0)
}

func (b *broker) status(field string) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.cmd.Process.Pid))
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(field)); ok {
			n, _ := strconv.ParseInt(strings.Fields(string(rest))[0], 10, 64)
			return n
		}
	}
	return 0
}

// openFiles counts the descriptors of the process.
func (b *broker) openFiles() int {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.cmd.Process.Pid))
	return len(entries)
}

// dial connects to a port, from an address of its own if from is not empty.
func dial(from, to string) (net.Conn, error) {
	d := net.Dialer{Timeout: 3 * time.Second}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	return d.Dial("tcp", to)
}

// closedWithin reads until the other side closes, and reports whether it does in time.
func closedWithin(conn net.Conn, d time.Duration) bool {
	_ = conn.SetReadDeadline(time.Now().Add(d))
	_, err := io.Copy(io.Discard, conn)
	var slow net.Error
	return !errors.As(err, &slow) || !slow.Timeout()
}

// portsTaken are the first ports of the brokers of this process that may still run: a broker
// that is prepared does not listen yet, so that its ports look free to the next one.
var portsTaken sync.Map

// freePorts returns the first of ten free ports in a row, which no other test gets in the meantime.
func freePorts(t testing.TB) int {
	t.Helper()
	for range 200 {
		base := portsFrom + rand.IntN((portsTo-portsFrom)/portsPerBroker)*portsPerBroker
		if _, taken := portsTaken.LoadOrStore(base, true); taken {
			continue
		}
		t.Cleanup(func() { portsTaken.Delete(base) })
		if allFree(base) {
			return base
		}
	}
	t.Fatal("no free ports")
	return 0
}

func allFree(base int) bool {
	for plus := range portsPerBroker {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+plus))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}

// secure makes a TLS handshake on a connection, in time.
func secure(conn net.Conn, config *tls.Config) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c := tls.Client(conn, config)
	return c, c.HandshakeContext(ctx)
}
