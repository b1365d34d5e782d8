package etcd_test

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/rpc/peertls"
)

// named gives a member the certificate of its name, and the names that it accepts.
func named(t *testing.T, o *etcd.Options, ca *certs.Authority, known ...string) *peertls.Names {
	t.Helper()
	ca.Issue(o.Name)
	names, err := peertls.NewNames("", known...)
	require.NoError(t, err)
	o.TLS = etcd.TLS{Cert: ca.File(o.Name + ".pem"), Key: ca.File(o.Name + ".key"), CA: ca.File("ca.pem")}
	o.Names = names
	return names
}

// reaches begins a connection at the client port, and reads /members through the peer port.
func reaches(t *testing.T, o etcd.Options, security *tls.Config) (client, peer error) {
	t.Helper()
	return reachesClientPort(t, o, security), reachesPeerPort(t, o, security)
}

// reachesClientPort returns nil when etcd has answered the first frame of HTTP/2. In TLS 1.3 a
// server refuses a certificate after the client's handshake.
func reachesClientPort(t *testing.T, o etcd.Options, security *tls.Config) error {
	t.Helper()
	security = security.Clone()
	security.NextProtos = []string{"h2"}
	c, err := (&tls.Dialer{Config: security}).DialContext(wait.Context(t), "tcp", o.ClientAddress)
	if err != nil {
		return err
	}
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(wait.Limit)))
	if _, err := c.Write([]byte(preface)); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 9))
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	return err
}

// preface begins a connection of HTTP/2: its fixed text, and empty settings.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

func reachesPeerPort(t *testing.T, o etcd.Options, security *tls.Config) error {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: security}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: wait.Limit}).Get("https://" + o.PeerAddress + "/members")
	if err != nil {
		return err
	}
	said, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	if resp.StatusCode == http.StatusForbidden {
		return errors.New(string(said))
	}
	return nil
}

// clientOf returns a client of one port; nil: without TLS.
func clientOf(t *testing.T, endpoint string, security *tls.Config) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, TLS: security, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestOnlyBrokersReachTheEmbeddedEtcd: a certificate of the authority without a broker's name, or
// for clients alone, opens neither port; the log names it.
func TestOnlyBrokersReachTheEmbeddedEtcd(t *testing.T) {
	t.Parallel()
	ca := certs.New(t)
	o := options(t, "n1")
	logger, logged := logtest.NewNullLogger()
	o.Log = logger
	o.InitialCluster = "n1=https://" + o.PeerAddress
	named(t, &o, ca, "n1", "n2")
	opening(t, o).up()
	ca.Issue("n2")
	client, peer := reaches(t, o, ca.Client("n2"))
	require.NoError(t, client)
	require.NoError(t, peer)
	putBy(t, clientOf(t, o.ClientAddress, ca.Client("n2")), "k")
	ca.Issue("n9")
	ca.Issue("shop.example")
	ca.IssueClient("client")
	ca.IssueClient("posing", "n2")
	for _, name := range []string{"n9", "shop.example", "client", "posing", ""} {
		client, peer := reaches(t, o, ca.Client(name))
		require.Error(t, client, name)
		require.Error(t, peer, name)
	}
	for _, shown := range []string{"CN=n9", "CN=shop.example", "CN=client"} {
		wait.Until(t, func() bool { return hasLine(logged, shown, `known brokers ["n1" "n2"]`) }, "the log has %s", shown)
	}
	wait.Until(t, func() bool { return hasLine(logged, "CN=posing", "serverAuth") }, "the log has CN=posing")
}

// hasLine reports whether one error of the log has all texts.
func hasLine(logged *logtest.Hook, texts ...string) bool {
	for _, e := range logged.AllEntries() {
		err, ok := e.Data[logrus.ErrorKey].(error)
		if !ok {
			continue
		}
		all := true
		for _, text := range texts {
			all = all && strings.Contains(err.Error(), text)
		}
		if all {
			return true
		}
	}
	return false
}

// TestAMemberThatJoinsIsNamedFirst: a cluster whose names are those of its members admits a
// further one when its name is allowed.
func TestAMemberThatJoinsIsNamedFirst(t *testing.T) {
	t.Parallel()
	ca := certs.New(t)
	members := three(t)
	cluster := strings.ReplaceAll(members[0].InitialCluster, "http:", "https:")
	two := cluster[:strings.LastIndex(cluster, ",")]
	var names []*peertls.Names
	for i := range members {
		members[i].InitialCluster = two
		if i == 2 {
			members[i].InitialCluster = cluster
		}
		names = append(names, named(t, &members[i], ca, "n1", "n2"))
	}
	names[2].SetNodes([]string{"n1", "n2", "n3"})
	openAll(t, members[:2])
	third := opening(t, members[2])
	third.waits(`it refuses this broker: no broker with a name of its certificate, ["n3"], is a member or invited: run nsqctl cluster invite`)
	names[0].SetNodes([]string{"n1", "n2", "n3"})
	names[1].SetNodes([]string{"n1", "n2", "n3"})
	third.up()
	names[0].SetNodes(nil) // from now on it is a member
	client, peer := reaches(t, members[0], ca.Client("n3"))
	require.NoError(t, client)
	require.NoError(t, peer)
}

// TestABrokerThatIsNotAdmittedLearnsWhy: every request at the peer port is answered with the reason, the connection ends, and
// takes no broker's seat. A certificate that was not issued for a broker does not come that far.
func TestABrokerThatIsNotAdmittedLearnsWhy(t *testing.T) {
	t.Parallel()
	ca := certs.New(t)
	o := options(t, "n1")
	o.InitialCluster = "n1=https://" + o.PeerAddress
	names := named(t, &o, ca, "n1")
	var invited atomic.Pointer[[]string]
	invited.Store(&[]string{})
	names.SetInvited(func() []string { return *invited.Load() })
	server := opening(t, o).up()
	ca.Issue("n4")
	ca.IssueClient("posing", "n4")
	transport := &http.Transport{TLSClientConfig: ca.Client("n4")}
	defer transport.CloseIdleConnections()
	ask := func(method, path string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(wait.Context(t), method, "https://"+o.PeerAddress+path, nil)
		require.NoError(t, err)
		resp, err := transport.RoundTrip(req)
		require.NoError(t, err)
		said, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp, string(said)
	}
	for path, method := range map[string]string{"/members": "GET", "/lockstep/member": "GET", "/raft": "POST", "/raft/stream/message/1": "GET", "/members/promote/1": "POST", "/": "GET"} {
		resp, said := ask(method, path)
		require.Equal(t, http.StatusForbidden, resp.StatusCode, path)
		require.Contains(t, said, `["n4"]`, path)
		require.True(t, resp.Close, path)
		_, peers := server.Connections()
		require.Zero(t, peers.Admitted, path)
	}
	require.ErrorContains(t, reachesPeerPort(t, o, ca.Client("posing")), "tls")

	invited.Store(&[]string{"n4"})
	resp, _ := ask("GET", "/members")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, reachesClientPort(t, o, ca.Client("n4")))
	invited.Store(&[]string{})
	resp, _ = ask("GET", "/members") // over the connection that was admitted
	require.Equal(t, http.StatusForbidden, resp.StatusCode)
	require.Error(t, reachesClientPort(t, o, ca.Client("n4")))
}

// TestPortsFollowTheFiles: the ports show a new certificate, and trust a new authority, without
// a restart.
func TestPortsFollowTheFiles(t *testing.T) {
	t.Parallel()
	ca, next := certs.New(t), certs.New(t)
	o := options(t, "n1")
	o.InitialCluster = "n1=https://" + o.PeerAddress
	named(t, &o, ca, "n1")
	opening(t, o).up()
	next.Issue("n1")
	client, peer := reaches(t, o, next.Client("n1"))
	require.Error(t, client)
	require.Error(t, peer)
	for _, file := range []string{"n1.key", "n1.pem", "ca.pem"} {
		b, err := os.ReadFile(next.File(file))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(ca.File(file), b, 0o600))
	}
	wait.Until(t, func() bool {
		client, peer := reaches(t, o, next.Client("n1"))
		return client == nil && peer == nil
	}, "both ports trust the new authority")
}

// TestAFloodOfSilentConnections: connections at both ports that send nothing, or half of a
// request, take a bounded number of files, and keep no broker out.
func TestAFloodOfSilentConnections(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, o, security := smallPorts(t, secure)
			ask := keptOpen(t, o, security)
			ask()
			flood(t, s, o)
			require.True(t, ask(), "the connection of a member was displaced")
			putBy(t, clientOf(t, s.Local(), nil), "k")
			putBy(t, clientOf(t, o.ClientAddress, security), "k")
		})
	}
}

// smallPorts starts a member that takes few connections.
func smallPorts(t *testing.T, secure bool) (s *etcd.Server, o etcd.Options, security *tls.Config) {
	t.Helper()
	o = options(t, "n1")
	o.Connections = peertls.Limits{Admitted: 32, Waiting: 16}
	if secure {
		ca := certs.New(t)
		o.InitialCluster = "n1=https://" + o.PeerAddress
		named(t, &o, ca, "n1")
		security = ca.Client("n1")
	}
	return opening(t, o).up(), o, security
}

// flood makes connections at both ports of a member until most of them are displaced.
func flood(t *testing.T, s *etcd.Server, o etcd.Options) {
	t.Helper()
	for i := range 200 {
		for _, address := range []string{o.ClientAddress, o.PeerAddress} {
			nc, err := net.Dial("tcp", address)
			require.NoError(t, err)
			t.Cleanup(func() { _ = nc.Close() })
			if i%8 == 0 {
				_, _ = nc.Write([]byte("PRI * HT")) // it may be closed already
			}
		}
	}
	wait.Until(t, func() bool {
		clients, peers := s.Connections()
		return clients.Displaced > 100 && peers.Displaced > 100 && clients.Waiting <= 16 && peers.Waiting <= 16
	}, "the flood displaces itself")
}

// keptOpen returns a function that sends a request to the peer port, and reports whether it went
// over the connection of the request before.
func keptOpen(t *testing.T, o etcd.Options, security *tls.Config) func() (again bool) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: security}
	t.Cleanup(transport.CloseIdleConnections)
	url := "http://" + o.PeerAddress + "/members"
	if security != nil {
		url = "https://" + o.PeerAddress + "/members"
	}
	return func() (again bool) {
		t.Helper()
		ctx := httptrace.WithClientTrace(wait.Context(t), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { again = c.Reused }})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		require.NoError(t, err)
		resp, err := (&http.Client{Transport: transport}).Do(req)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return again
	}
}

// TestConnectionsToMembersFollowTheFiles: the connections that a member makes to another one
// trust a new authority without a restart, and not the earlier one; a server without a broker's
// name is no member for them.
func TestConnectionsToMembersFollowTheFiles(t *testing.T) {
	t.Parallel()
	ca, next := certs.New(t), certs.New(t)
	members := several(t, 2)
	for i := range members {
		members[i].InitialCluster = strings.ReplaceAll(members[i].InitialCluster, "http:", "https:")
		o := &members[i]
		named(t, o, ca, "n1", "n2")
		// Each member has files of its own: they are replaced one after the other.
		dir := t.TempDir()
		o.TLS = etcd.TLS{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), CA: filepath.Join(dir, "ca")}
		install(t, o.TLS, ca, o.Name)
	}
	all := openAll(t, members)
	next.Issue("n1")
	next.Issue("n2")
	for i := range members {
		install(t, members[i].TLS, next, members[i].Name)
	}
	wait.Until(t, func() bool { return reachesPeerPort(t, members[0], next.Client("n1")) == nil }, "the port trusts the new authority")
	all[1].stop() // ends the connections of both
	second := opening(t, members[1])
	second.up()
	for _, s := range []*etcd.Server{all[0].server, second.server} { // they agree: each reaches the other
		putBy(t, clientOf(t, s.Local(), nil), "k")
	}

	// The other way round: the earlier authority, and a certificate without a broker's name.
	second.stop()
	install(t, members[1].TLS, ca, "n2")
	require.True(t, refuses(t, members[1], ca.Mutual("n2")), "the earlier authority is trusted")
	next.Issue("shop")
	require.True(t, refuses(t, members[1], next.Mutual("shop")), "what is no broker is taken for a member")
	require.False(t, refuses(t, members[1], next.Mutual("n2")), "the members send nothing here: the test shows nothing")
}

// refuses answers in place of a member until a request has come, or the other members have ended five handshakes.
func refuses(t *testing.T, o etcd.Options, security *tls.Config) bool {
	t.Helper()
	l, err := net.Listen("tcp", o.PeerAddress)
	require.NoError(t, err)
	var refused, came atomic.Int64
	server := &http.Server{
		TLSConfig: security,
		ErrorLog: log.New(handshakes(func(line string) {
			if strings.Contains(line, "tls: bad certificate") || strings.Contains(line, "tls: unknown certificate") {
				refused.Add(1)
			}
		}), "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { came.Add(1); w.WriteHeader(http.StatusNotFound) }),
	}
	go func() { _ = server.ServeTLS(l, "", "") }() // ends with Close
	defer func() { _ = server.Close() }()
	wait.Until(t, func() bool { return refused.Load() >= 5 || came.Load() > 0 }, "the member dials")
	return came.Load() == 0
}

// handshakes receives what a server logs of failed handshakes.
type handshakes func(line string)

func (h handshakes) Write(b []byte) (int, error) { h(string(b)); return len(b), nil }

// install writes a certificate and its authority to the files of a member.
func install(t *testing.T, to etcd.TLS, ca *certs.Authority, name string) {
	t.Helper()
	for from, file := range map[string]string{name + ".pem": to.Cert, name + ".key": to.Key, "ca.pem": to.CA} {
		b, err := os.ReadFile(ca.File(from))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, b, 0o600))
	}
}
