package listen_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
	"github.com/lockstepmq/lockstep/internal/frontend/listen"
	"github.com/lockstepmq/lockstep/internal/frontend/tcp"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
	"github.com/lockstepmq/lockstep/internal/test/testkit/edgetest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker has every edge on a fake cluster, on its own ports.
type broker struct {
	*listen.Server
	cluster *edgetest.Cluster
	tls     *listen.TLS
	files   config.ClientTLS
	metrics *metrics.Recorder
}

func start(t *testing.T) *broker { return startWith(t, listen.Options{}) }

// startWith fills in the addresses and the handlers.
func startWith(t *testing.T, o listen.Options) *broker { return startGuarded(t, o, nil) }

// startGuarded is startWith for a broker with users.
func startGuarded(t *testing.T, o listen.Options, g *guard.Guard) *broker {
	log := logrus.New()
	log.SetOutput(io.Discard)
	b := &broker{cluster: edgetest.New(), metrics: metrics.New(0), files: writeCertificate(t, t.TempDir(), 1)}
	var err error
	b.tls, err = listen.LoadTLS(b.files)
	require.NoError(t, err)
	o.Farewells = 16
	const any = "127.0.0.1:0"
	o.Addresses, o.TLS, o.Log, o.Metrics = [4]string{any, any, any, any}, b.tls, log, b.metrics
	if g != nil {
		o.Open = g.Open
	}
	b.Server, err = listen.Listen(o)
	require.NoError(t, err)
	po := tcp.DefaultOptions()
	po.TLS = b.tls.Config()
	ho := httpapi.Options{InfoReply: httpapi.InfoReply{Version: "1.3.0"}, Messages: po.Messages}
	hb := httpapi.Backend{
		Publisher: b.cluster, Stats: b.cluster, Admin: b.cluster, Directory: b.cluster.Directory(), Log: log, Guard: g,
	}
	b.Start(listen.Handlers{
		TCP:  tcp.New(po, tcp.Backend{Publisher: b.cluster, Subscribers: b.cluster, Log: log, Guard: g}),
		HTTP: httpapi.NSQD(ho, hb), HTTPS: httpapi.NSQD(ho, hb), Lookup: httpapi.Lookup(ho, hb),
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait.Limit)
		defer cancel()
		b.Stop(ctx)
		b.cluster.Close()
	})
	return b
}

// writeCertificate puts a self-signed pair into dir.
func writeCertificate(t *testing.T, dir string, serial int64) config.ClientTLS {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "broker"},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour), // expired: clients judge that, not the server
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	der, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	o := config.ClientTLS{TLSCert: filepath.Join(dir, "cert.pem"), TLSKey: filepath.Join(dir, "key.pem")}
	write := func(path, kind string, b []byte) {
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600))
	}
	write(o.TLSCert, "CERTIFICATE", cert)
	write(o.TLSKey, "EC PRIVATE KEY", der)
	return o
}

// get returns the answer to a request. A connection above the limits has five seconds: an attempt that stands still
// for so long proves nothing, and is made again.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	wait.Until(t, func() bool {
		inTime := wait.Expiring(t, 2*time.Second)
		var err error
		status, body, err = tryGet(url)
		if inTime.Err() == nil {
			require.NoError(t, err)
		}
		return err == nil
	}, "%s answers", url)
	return status, body
}

func tryGet(url string) (int, string, error) {
	client := &http.Client{Timeout: wait.Limit, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	r, err := client.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	return r.StatusCode, string(body), err
}

// speak connects from an address of this machine, sends a line, and returns what comes back.
func speak(t *testing.T, from string, to net.Addr, say string) (net.Conn, string) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.Dial("tcp", to.String())
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(wait.Limit)))
	_, _ = io.WriteString(conn, say) // it may be closed already
	b := make([]byte, 1024)
	n, _ := conn.Read(b) // 0 if it was closed
	return conn, string(b[:n])
}

// The first bytes of a client at each port.
const (
	hello   = "  V2IDENTIFY\n\x00\x00\x00\x02{}"
	askInfo = "GET /info HTTP/1.1\r\nHost: b\r\n\r\n"
	askPing = "GET /ping HTTP/1.1\r\nHost: b\r\n\r\n"
)

// TestConnLimit: a connection above the limit hears why it is not served; after one has ended,
// another is accepted.
func TestConnLimit(t *testing.T) {
	b := startWith(t, listen.Options{MaxTCP: 2, MaxHTTP: 2, SpareHTTP: 1})
	for _, port := range []struct {
		address           net.Addr
		say, hears, above string
	}{
		{b.Addr(listen.TCP), hello, "OK", "E_TOO_MANY_CONNECTIONS this broker has as many clients"},
		{b.Addr(listen.HTTP), askInfo, "200 OK", `{"message":"TOO_MANY_CONNECTIONS","detail":"the broker has reached its connection limit`},
	} {
		first, answer := speak(t, "127.0.0.1", port.address, port.say)
		require.Contains(t, answer, port.hears)
		second, answer := speak(t, "127.0.0.1", port.address, port.say)
		require.Contains(t, answer, port.hears)
		third, answer := speak(t, "127.0.0.1", port.address, port.say)
		require.Contains(t, answer, port.above)
		require.NoError(t, errors.Join(first.Close(), third.Close()))
		wait.Until(t, func() bool {
			conn, answer := speak(t, "127.0.0.1", port.address, port.say)
			_ = conn.Close()
			return strings.Contains(answer, port.hears)
		}, "there is room again")
		require.NoError(t, second.Close())
	}
	require.GreaterOrEqual(t, b.refused("tcp_connections"), 1)
	require.GreaterOrEqual(t, b.refused("http_connections"), 1)
}

// refused reads a value of refused_total.
func (b *broker) refused(limit string) int {
	w := httptest.NewRecorder()
	b.metrics.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		var n int
		if _, err := fmt.Sscanf(line, fmt.Sprintf("lockstep_refused_total{limit=%q} %%d", limit), &n); err == nil {
			return n
		}
	}
	return -1
}

// TestConnectionsOfAnAddress: one address cannot lock the others out.
func TestConnectionsOfAnAddress(t *testing.T) {
	b := startWith(t, listen.Options{MaxTCP: 10, MaxHTTP: 10, MaxTCPPerAddress: 2, MaxHTTPPerAddress: 2, SpareHTTP: 2})
	for _, port := range []struct {
		address           net.Addr
		say, hears, above string
	}{
		{b.Addr(listen.TCP), hello, "OK", "E_TOO_MANY_CONNECTIONS this address has"},
		{b.Addr(listen.HTTP), askInfo, "200 OK", `{"message":"TOO_MANY_CONNECTIONS_OF_ADDRESS","detail":"this address has`},
	} {
		for i, from := range []string{"127.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2", "127.0.0.2"} {
			conn, answer := speak(t, from, port.address, port.say)
			defer conn.Close()
			if i%3 < 2 {
				require.Contains(t, answer, port.hears, from)
			} else {
				require.Contains(t, answer, port.above, from)
			}
		}
	}
	require.Equal(t, 2, b.refused("tcp_address"))
	require.Equal(t, 2, b.refused("http_address"))
}

// TestProbesHaveSeats: while silent connections hold every seat, at all HTTP ports, a probe is
// answered, and nothing else is.
func TestProbesHaveSeats(t *testing.T) {
	b := startWith(t, listen.Options{MaxHTTP: 20, MaxHTTPPerAddress: 18, SpareHTTP: 4, LoginTimeout: time.Hour})
	var crowd []net.Conn
	defer func() {
		for _, conn := range crowd {
			_ = conn.Close()
		}
	}()
	var open atomic.Int32
	for i := range 200 {
		conn, err := net.Dial("tcp", []net.Addr{b.Addr(listen.HTTP), b.Addr(listen.HTTPS), b.Addr(listen.Lookup)}[i%3].String())
		require.NoError(t, err)
		crowd = append(crowd, conn)
		open.Add(1)
		go func() { // ends with the connection
			_, _ = io.Copy(io.Discard, conn)
			open.Add(-1)
		}()
	}
	wait.Until(t, func() bool { return open.Load() <= 18+4 }, "all others have given way")
	for range 20 {
		status, body := get(t, "http://"+b.Addr(listen.HTTP).String()+"/healthz")
		require.Equal(t, "200 OK", fmt.Sprint(status, " ", body))
		status, body = get(t, "https://"+b.Addr(listen.HTTPS).String()+"/ping")
		require.Equal(t, "200 OK", fmt.Sprint(status, " ", body))
		status, _ = get(t, "http://"+b.Addr(listen.Lookup).String()+"/topics")
		require.Equal(t, http.StatusServiceUnavailable, status)
	}
	// A connection that has asked for a probe gets nothing behind it.
	conn, answer := speak(t, "127.0.0.1", b.Addr(listen.HTTP), askPing+askInfo)
	rest, _ := io.ReadAll(conn)
	_ = conn.Close()
	require.Contains(t, answer, "200 OK")
	require.NotContains(t, answer+string(rest), `"version"`)
	require.Contains(t, answer, "Connection: close")
	for _, conn := range crowd {
		_ = conn.Close()
	}
	crowd = nil
	wait.Until(t, func() bool {
		status, _ := get(t, "http://"+b.Addr(listen.Lookup).String()+"/topics")
		return status == http.StatusOK
	}, "there is room again")
}

func TestPorts(t *testing.T) {
	b := start(t)
	for _, url := range []string{
		"http://" + b.Addr(listen.HTTP).String() + "/ping",
		"https://" + b.Addr(listen.HTTPS).String() + "/ping",
		"http://" + b.Addr(listen.Lookup).String() + "/ping",
	} {
		status, body := get(t, url)
		require.Equal(t, "200 OK", fmt.Sprint(status, " ", body))
	}
	require.Positive(t, b.Number(listen.TCP))
}

func TestReload(t *testing.T) {
	b := start(t)
	serial := func() int64 {
		conn, err := tls.Dial("tcp", b.Addr(listen.HTTPS).String(), &tls.Config{InsecureSkipVerify: true})
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	require.Equal(t, int64(1), serial())
	writeCertificate(t, filepath.Dir(b.files.TLSCert), 2)
	require.NoError(t, b.tls.Reload())
	require.Equal(t, int64(2), serial())
	require.NoError(t, os.WriteFile(b.files.TLSCert, []byte("x"), 0o600))
	require.Error(t, b.tls.Reload())
	require.Equal(t, int64(2), serial(), "what was loaded before stays")
}

func TestTLSOptions(t *testing.T) {
	o := writeCertificate(t, t.TempDir(), 1)
	for _, row := range []struct {
		change func(*config.ClientTLS)
		auth   tls.ClientAuthType
		min    uint16
		fails  string
	}{
		{func(*config.ClientTLS) {}, tls.NoClientCert, tls.VersionTLS12, ""},
		{func(o *config.ClientTLS) { o.TLSClientAuthPolicy = "require" }, tls.RequireAnyClientCert, tls.VersionTLS12, ""},
		{func(o *config.ClientTLS) { o.TLSClientAuthPolicy, o.TLSRootCAFile = "require-verify", o.TLSCert }, tls.RequireAndVerifyClientCert, tls.VersionTLS12, ""},
		{func(o *config.ClientTLS) { o.TLSMinVersion = "tls1.0" }, tls.NoClientCert, tls.VersionTLS10, ""},
		{func(o *config.ClientTLS) { o.TLSMinVersion = "tls1.1" }, tls.NoClientCert, tls.VersionTLS11, ""},
		{func(o *config.ClientTLS) { o.TLSMinVersion = "tls1.2" }, tls.NoClientCert, tls.VersionTLS12, ""},
		{func(o *config.ClientTLS) { o.TLSMinVersion = "tls1.3" }, tls.NoClientCert, tls.VersionTLS13, ""},
		{func(o *config.ClientTLS) { o.TLSMinVersion = "ssl3.0" }, 0, 0, `unknown TLS version "ssl3.0"`},
		{func(o *config.ClientTLS) { o.TLSClientAuthPolicy = "maybe" }, 0, 0, `unknown TLS client auth policy "maybe"`},
		{func(o *config.ClientTLS) { o.TLSRootCAFile = o.TLSKey }, 0, 0, "no certificate in"},
		{func(o *config.ClientTLS) { o.TLSRootCAFile = "none" }, 0, 0, "load TLS root CAs"},
		{func(o *config.ClientTLS) { o.TLSKey = "none" }, 0, 0, "load TLS certificate"},
	} {
		changed := o
		row.change(&changed)
		loaded, err := listen.LoadTLS(changed)
		if row.fails != "" {
			require.ErrorContains(t, err, row.fails)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, row.auth, loaded.Config().ClientAuth)
		require.Equal(t, row.min, loaded.Config().MinVersion)
	}
}

// All addresses or none.
func TestListenFailure(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	_, err = listen.Listen(listen.Options{Addresses: [4]string{"127.0.0.1:0", taken.Addr().String()}})
	require.ErrorContains(t, err, "listen for HTTP")
}

// The socket file of a killed broker does not prevent the next start.
func TestAbandonedUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	require.NoError(t, err)
	_, err = listen.Listen(listen.Options{Addresses: [4]string{path}})
	require.Error(t, err, "a process serves it")
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, l.Close())
	s, err := listen.Listen(listen.Options{Addresses: [4]string{path}})
	require.NoError(t, err)
	require.Equal(t, -1, s.Number(listen.TCP))
	require.Equal(t, -1, s.Number(listen.HTTP))
	s.Stop(t.Context())
}

// silent keeps go-nsq quiet.
type silent struct{}

func (silent) Output(int, string) error { return nil }

// The unmodified Go client works through every kind of stream.
func TestGoNSQ(t *testing.T) {
	b := start(t)
	for name, change := range map[string]func(*nsq.Config){
		"plain":       func(*nsq.Config) {},
		"snappy":      func(c *nsq.Config) { c.Snappy = true },
		"deflate":     func(c *nsq.Config) { c.Deflate = true },
		"tls":         func(c *nsq.Config) { c.TlsV1 = true },
		"tls_snappy":  func(c *nsq.Config) { c.TlsV1, c.Snappy = true, true },
		"tls_deflate": func(c *nsq.Config) { c.TlsV1, c.Deflate = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			config := nsq.NewConfig()
			config.TlsConfig = &tls.Config{InsecureSkipVerify: true}
			config.MaxInFlight = 100
			config.DialTimeout, config.ReadTimeout, config.WriteTimeout = wait.Limit, wait.Limit, wait.Limit
			change(config)
			b.roundTrip(t, name, config)
		})
	}
}

func (b *broker) producer(t *testing.T, config *nsq.Config) *nsq.Producer {
	p, err := nsq.NewProducer(b.Addr(listen.TCP).String(), config)
	require.NoError(t, err)
	p.SetLogger(silent{}, nsq.LogLevelError)
	return p
}

func (b *broker) roundTrip(t *testing.T, topic string, config *nsq.Config) {
	const n = 500
	p := b.producer(t, config)
	defer p.Stop()
	require.NoError(t, p.Ping())
	bad := b.producer(t, config)
	require.ErrorContains(t, bad.Publish("bad$topic", []byte("x")), "E_BAD_TOPIC PUB topic name")
	bad.Stop()
	answers := make(chan *nsq.ProducerTransaction, n)
	for i := range n {
		require.NoError(t, p.PublishAsync(topic, []byte(fmt.Sprint(i)), answers))
	}
	for range n {
		require.NoError(t, (<-answers).Error)
	}
	require.NoError(t, p.MultiPublish(topic, [][]byte{[]byte("a"), []byte("b")}))
	require.NoError(t, p.DeferredPublish(topic, time.Millisecond, []byte("c")))
	require.NoError(t, p.Publish(topic, []byte("d")))

	c, err := nsq.NewConsumer(topic, "ch", config)
	require.NoError(t, err)
	c.SetLogger(silent{}, nsq.LogLevelError)
	var got atomic.Int32
	c.AddConcurrentHandlers(nsq.HandlerFunc(func(m *nsq.Message) error {
		if m.Attempts == 1 && string(m.Body) == "a" {
			m.RequeueWithoutBackoff(0)
			return nil
		}
		got.Add(1)
		return nil
	}), 4)
	require.NoError(t, c.ConnectToNSQD(b.Addr(listen.TCP).String()))
	wait.Until(t, func() bool { return got.Load() == n+4 }, "all messages have arrived")
	c.Stop()
	<-c.StopChan
}

// A client that speaks the NSQ protocol at the HTTP port receives an HTTP answer.
func TestV2OnTheHTTPPort(t *testing.T) {
	b := start(t)
	conn, err := net.Dial("tcp", b.Addr(listen.HTTP).String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "  V2IDENTIFY\n\x00\x00\x00\x02{}")
	require.NoError(t, err)
	answer := make([]byte, 12)
	_, err = io.ReadFull(conn, answer)
	require.NoError(t, err)
	require.Equal(t, "HTTP/1.1 400", string(answer))
}

// Stop waits for pending puts and ends idle clients.
func TestStop(t *testing.T) {
	b := start(t)
	b.cluster.Hold()
	idle, err := net.Dial("tcp", b.Addr(listen.TCP).String())
	require.NoError(t, err)
	defer func() { _ = idle.Close() }()
	conn, err := net.Dial("tcp", b.Addr(listen.TCP).String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "  V2PUB t\n\x00\x00\x00\x01m")
	require.NoError(t, err)
	wait.Until(t, func() bool { return b.cluster.Held() == 1 }, "the put is pending")
	stopped := make(chan struct{})
	go func() { defer close(stopped); b.Stop(context.Background()) }()
	wait.Until(t, func() bool {
		c, err := net.Dial("tcp", b.Addr(listen.TCP).String())
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	}, "the port is closed")
	b.cluster.Release()
	answer, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, "\x00\x00\x00\x06\x00\x00\x00\x00OK", string(answer))
	<-stopped
}
