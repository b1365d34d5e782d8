package etcdserver_test

import (
	"context"
	"crypto/tls"
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

	"github.com/lockstepmq/lockstep/internal/etcdserver"
	"github.com/lockstepmq/lockstep/internal/peerport"
	"github.com/lockstepmq/lockstep/internal/testkit/certs"
)

// named gives a member the certificate of its name, and the names that it accepts.
func named(t *testing.T, o *etcdserver.Options, ca *certs.Authority, known ...string) *peerport.Names {
	t.Helper()
	ca.Issue(o.Name)
	names, err := peerport.NewNames("", known...)
	require.NoError(t, err)
	o.TLS = etcdserver.TLS{Cert: ca.File(o.Name + ".pem"), Key: ca.File(o.Name + ".key"), CA: ca.File("ca.pem")}
	o.Names = names
	return names
}

// reaches writes a key through the client port, and reads /members through the peer port.
func reaches(t *testing.T, o etcdserver.Options, security *tls.Config) (client, peer error) {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{o.ClientAddress}, TLS: security, DialTimeout: time.Second, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer c.Close()
	_, client = c.Put(within(t, 2*time.Second), "k", "v")
	transport := &http.Transport{TLSClientConfig: security}
	defer transport.CloseIdleConnections()
	resp, peer := (&http.Client{Transport: transport, Timeout: 2 * time.Second}).Get("https://" + o.PeerAddress + "/members")
	if peer == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		require.NoError(t, resp.Body.Close())
	}
	return client, peer
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
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
		require.True(t, hasLine(logged, shown, `known brokers ["n1" "n2"]`), shown)
	}
	require.True(t, hasLine(logged, "CN=posing", "serverAuth"))
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
	var names []*peerport.Names
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
	third.waits("it refuses this broker")
	names[0].SetNodes([]string{"n1", "n2", "n3"})
	names[1].SetNodes([]string{"n1", "n2", "n3"})
	third.up()
	names[0].SetNodes(nil) // from now on it is a member
	client, peer := reaches(t, members[0], ca.Client("n3"))
	require.NoError(t, client)
	require.NoError(t, peer)
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
	require.Eventually(t, func() bool {
		client, peer := reaches(t, o, next.Client("n1"))
		return client == nil && peer == nil
	}, deadline, pollEvery)
}

// TestAFloodOfSilentConnections: connections at both ports that send nothing, or half of a
// request, take a bounded number of files, keep no broker out, and do not hold up the stop.
func TestAFloodOfSilentConnections(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca := certs.New(t)
			o := options(t, "n1")
			o.Connections = peerport.Limits{Admitted: 32, Waiting: 16}
			var security *tls.Config
			if secure {
				o.InitialCluster = "n1=https://" + o.PeerAddress
				named(t, &o, ca, "n1")
			}
			m := opening(t, o)
			s := m.up()
			if secure {
				security = ca.Client("n1")
			}
			ask := keptOpen(t, o, security)
			ask()
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
			require.Eventually(t, func() bool {
				clients, peers := s.Connections()
				return clients.Displaced > 100 && peers.Displaced > 100 && clients.Waiting <= 16 && peers.Waiting <= 16
			}, deadline, pollEvery)
			require.True(t, ask(), "the connection of a member was displaced")
			for endpoint, config := range map[string]*tls.Config{s.Local(): nil, o.ClientAddress: security} {
				c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, TLS: config, Logger: zap.NewNop()})
				require.NoError(t, err)
				defer c.Close()
				_, err = c.Put(within(t, deadline), "k", "v")
				require.NoError(t, err, endpoint)
			}
			began := time.Now()
			s.Stop()
			require.Less(t, time.Since(began), 10*time.Second)
		})
	}
}

// keptOpen returns a function that sends a request to the peer port, and reports whether it went
// over the connection of the request before.
func keptOpen(t *testing.T, o etcdserver.Options, security *tls.Config) func() (again bool) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: security}
	t.Cleanup(transport.CloseIdleConnections)
	url := "http://" + o.PeerAddress + "/members"
	if security != nil {
		url = "https://" + o.PeerAddress + "/members"
	}
	return func() (again bool) {
		t.Helper()
		ctx := httptrace.WithClientTrace(within(t, deadline), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { again = c.Reused }})
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

// TestAStopIsBounded: etcd's own port, without a front, waits for connections that have not sent
// a whole request.
func TestAStopIsBounded(t *testing.T) {
	t.Parallel()
	o := options(t, "n1")
	s := start(t, o)
	wait(t, s)
	for range 10 {
		nc, err := net.Dial("tcp", o.ClientAddress)
		require.NoError(t, err)
		t.Cleanup(func() { _ = nc.Close() })
		_, err = nc.Write([]byte("PRI"))
		require.NoError(t, err)
	}
	began := time.Now()
	s.Stop()
	require.Less(t, time.Since(began), 10*time.Second)
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
		o.TLS = etcdserver.TLS{Cert: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), CA: filepath.Join(dir, "ca")}
		install(t, o.TLS, ca, o.Name)
	}
	all := openAll(t, members)
	next.Issue("n1")
	next.Issue("n2")
	for i := range members {
		install(t, members[i].TLS, next, members[i].Name)
	}
	require.Eventually(t, func() bool { _, peer := reaches(t, members[0], next.Client("n1")); return peer == nil }, deadline, pollEvery)
	all[1].stop() // ends the connections of both
	second := opening(t, members[1])
	second.up()
	for _, s := range []*etcdserver.Server{all[0].server, second.server} { // they agree: each reaches the other
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Local()}, Logger: zap.NewNop()})
		require.NoError(t, err)
		defer c.Close()
		require.Eventually(t, func() bool { _, err := c.Put(within(t, time.Second), "k", "v"); return err == nil }, deadline, pollEvery)
	}

	// The other way round: the earlier authority, and a certificate without a broker's name.
	second.stop()
	install(t, members[1].TLS, ca, "n2")
	require.Zero(t, requests(t, members[1], ca.Mutual("n2")), "the earlier authority is trusted")
	next.Issue("shop")
	require.Zero(t, requests(t, members[1], next.Mutual("shop")), "what is no broker is taken for a member")
	require.NotZero(t, requests(t, members[1], next.Mutual("n2")), "the members send nothing here: the test shows nothing")
}

// requests answers in place of a member for a while, and returns how many requests came in.
func requests(t *testing.T, o etcdserver.Options, security *tls.Config) int64 {
	t.Helper()
	l, err := net.Listen("tcp", o.PeerAddress)
	require.NoError(t, err)
	var tried, came atomic.Int64
	server := &http.Server{
		TLSConfig: &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { tried.Add(1); return security, nil }},
		ErrorLog:  log.New(io.Discard, "", 0),
		Handler:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { came.Add(1); w.WriteHeader(http.StatusNotFound) }),
	}
	go func() { _ = server.ServeTLS(l, "", "") }() // ends with Close
	defer func() { _ = server.Close() }()
	require.Eventually(t, func() bool { return tried.Load() >= 5 || came.Load() > 0 }, deadline, pollEvery, "the member dials")
	return came.Load()
}

// install writes a certificate and its authority to the files of a member.
func install(t *testing.T, to etcdserver.TLS, ca *certs.Authority, name string) {
	t.Helper()
	for from, file := range map[string]string{name + ".pem": to.Cert, name + ".key": to.Key, "ca.pem": to.CA} {
		b, err := os.ReadFile(ca.File(from))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, b, 0o600))
	}
}

// TestOneByteTakesNoSeat: connections that send one plain byte, or a part of a request, are never
// admitted, their seats are free again in time, and a broker's client works meanwhile.
func TestOneByteTakesNoSeat(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ca := certs.New(t)
			o := options(t, "n1")
			o.Connections = peerport.Limits{Admitted: 32, Waiting: 256}
			var security *tls.Config
			if secure {
				o.InitialCluster = "n1=https://" + o.PeerAddress
				named(t, &o, ca, "n1")
				security = ca.Client("n1")
			}
			s := opening(t, o).up()
			const strangers = 100
			openings := []string{"P", "PRI * HTTP/2.0\r\n"}
			if secure { // the head of a record; any other first record is refused at once
				openings = []string{"P", "\x16\x03\x01"}
			}
			began := time.Now()
			for i := range strangers {
				nc, err := net.Dial("tcp", o.ClientAddress)
				require.NoError(t, err)
				t.Cleanup(func() { _ = nc.Close() })
				_, err = nc.Write([]byte(openings[i%len(openings)]))
				require.NoError(t, err)
			}
			require.Eventually(t, func() bool { clients, _ := s.Connections(); return clients.Waiting >= strangers }, deadline, pollEvery)
			clients, _ := s.Connections()
			require.Zero(t, clients.Admitted)
			c, err := clientv3.New(clientv3.Config{Endpoints: []string{o.ClientAddress}, TLS: security, Logger: zap.NewNop()})
			require.NoError(t, err)
			defer c.Close()
			_, err = c.Put(within(t, deadline), "k", "v")
			require.NoError(t, err)
			require.Less(t, time.Since(began), 4*time.Second, "the strangers were still there")
			require.Eventually(t, func() bool { clients, _ := s.Connections(); return clients.Waiting == 0 }, deadline, pollEvery)
			require.Less(t, time.Since(began), 10*time.Second)
			_, err = c.Put(within(t, deadline), "k", "v")
			require.NoError(t, err)
		})
	}
}
