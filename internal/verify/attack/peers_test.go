package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/testkit/env"
	"github.com/lockstepmq/lockstep/rpc"
)

// clusterName is the default of --cluster-name.
const clusterName = "lockstep"

// pair starts two brokers with TLS among them. Their authority has also issued a client's
// certificate, one for another server, and that of a third broker.
func pair(t *testing.T, flags ...string) (n1, n2 *broker, ca *authority) {
	ca = newAuthority(t)
	ca.issue("shop", clientOnly, "shop")
	ca.issue("web", serverAndClient, "web.example.org")
	ca.issue("n3", serverAndClient, "n3")
	n1, n2 = prepare(t, "n1", options{}), prepare(t, "n2", options{})
	members := fmt.Sprintf("--etcd-initial-cluster=n1=https://%s,n2=https://%s", n1.address(etcdPeerPort), n2.address(etcdPeerPort))
	for _, b := range []*broker{n1, n2} {
		b.trust(ca)
		b.args = append(append(b.args, members), flags...)
		b.run()
	}
	n1.ready()
	n2.ready()
	return n1, n2, ca
}

// never is how long an attack that fails is watched.
const never = 2 * time.Second

// impostor is a transport of an attacker: it claims to be a broker.
type impostor struct {
	*rpc.Transport
	up atomic.Bool
}

func (i *impostor) Frame(ident.Node, ident.Incarnation, rpc.Received) {}
func (i *impostor) Drained()                                          {}
func (i *impostor) Peer(_ ident.Node, _ ident.Incarnation, up, _ bool) {
	if up {
		i.up.Store(true)
	}
}
func (i *impostor) Serve(context.Context, ident.Node, string, []byte) (any, error) { return nil, nil }

// impersonate dials a broker as another one. address is where the attacker listens; "" = anywhere.
func impersonate(t *testing.T, target *broker, as ident.Node, inc ident.Incarnation, config *tls.Config, token, address string) *impostor {
	t.Helper()
	l, err := net.Listen("tcp", cmpOr(address, "127.0.0.1:0"))
	require.NoError(t, err)
	log := logrus.New()
	log.SetOutput(io.Discard)
	i := &impostor{}
	i.Transport = rpc.New(rpc.Options{
		Self: rpc.Hello{Cluster: clusterName, Node: as, Incarnation: inc}, Listen: l, Handler: i, TLS: config, Token: []byte(token), Log: log,
	})
	i.SetPeers(map[ident.Node]string{ident.Node(target.name): target.address(rpcPort)})
	t.Cleanup(func() { _ = i.Close() })
	return i
}

// mutual is the configuration of a broker's port with a certificate.
func (a *authority) mutual(name string) *tls.Config {
	c := a.client(name)
	c.ClientCAs, c.ClientAuth = c.RootCAs, tls.RequireAndVerifyClientCert
	return c
}

// TestOneCertificateIsOneBroker is finding 2, at the port of the brokers: a client's
// certificate, that of another server, and that of another broker do not make a broker of
// their owner; the broker that it claims to be goes on.
func TestOneCertificateIsOneBroker(t *testing.T) {
	n1, n2, ca := pair(t)
	n1.create("orders")
	for _, as := range []struct {
		node ident.Node
		inc  ident.Incarnation
	}{{"n2", 0}, {"n2", 1 << 40}, {"n1", 1 << 40}} {
		for _, certificate := range []string{"shop", "web", "n3", ""} {
			i := impersonate(t, n1, as.node, as.inc, ca.mutualOrNone(certificate), "", "")
			pause(never / 4)
			require.False(t, i.Up("n1"), "%s with the certificate %q", as.node, certificate)
			_, connected := i.Transport.Peer("n1")
			require.False(t, connected, "%s with the certificate %q has a connection", as.node, certificate)
			require.Error(t, i.Call(t.Context(), "n1", "broker.topics", nil, nil))
			require.NoError(t, i.Close())
		}
	}
	require.NoError(t, n1.client(t, bootstrap).put("orders", "m"), "the cluster goes on")
	require.True(t, n1.isReady() && n2.isReady())
}

// mutualOrNone is mutual; without a name no certificate is shown.
func (a *authority) mutualOrNone(name string) *tls.Config {
	c := a.client(name)
	c.ClientCAs, c.ClientAuth = c.RootCAs, tls.RequestClientCert
	return c
}

// TestEtcdRefusesClients is finding 2, at the ports of the embedded etcd: a certificate of the
// brokers' authority that names no broker neither reads nor writes.
func TestEtcdRefusesClients(t *testing.T) {
	n1, n2, ca := pair(t)
	connect := func(certificate string) error {
		c, err := clientv3.New(clientv3.Config{
			Endpoints: []string{"https://" + n1.address(etcdPort)}, TLS: ca.client(certificate), DialTimeout: never, Logger: zap.NewNop(),
		})
		if err != nil {
			return err
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), never)
		defer cancel()
		_, err = c.Put(ctx, clusterName+"/attacked", "by "+certificate)
		return err
	}
	require.NoError(t, connect("n2"), "a broker writes")
	for _, certificate := range []string{"shop", "web", ""} {
		require.Error(t, connect(certificate), "the certificate %q writes to etcd", certificate)
		for _, at := range []string{n1.address(etcdPeerPort), n2.address(etcdPeerPort)} {
			web := &http.Client{Timeout: never, Transport: &http.Transport{TLSClientConfig: ca.client(certificate), DisableKeepAlives: true}}
			for _, path := range []string{"/members", "/raft", "/raft/probing", "/lockstep/member?from=n2", "/version", "/lease/internal", "/members/hashkv"} {
				a, err := request(web, "", "GET", "https://"+at+path, "")
				require.True(t, err != nil || a.status == http.StatusForbidden || a.status == http.StatusUnauthorized, "the certificate %q gets %s: %d %s", certificate, path, a.status, a.body)
			}
		}
	}
	web := &http.Client{Timeout: never, Transport: &http.Transport{TLSClientConfig: ca.client("n2"), DisableKeepAlives: true}}
	a, err := request(web, "", "GET", "https://"+n1.address(etcdPeerPort)+"/members", "")
	require.NoError(t, err)
	require.Equal(t, 200, a.status, "a broker asks")
}

// TestABrokersHugeRequest is finding 9: a broker that an attacker has taken over sends a
// request of 64 MiB, with a list that is eight times as long in memory. The other broker takes
// no gigabytes.
func TestABrokersHugeRequest(t *testing.T) {
	token := filepath.Join(t.TempDir(), "cluster-token")
	require.NoError(t, os.WriteFile(token, []byte("secret"), 0o600))
	n1, n2, ca := pair(t, "--cluster-token-file="+token)
	require.NoError(t, n2.cmd.Process.Kill())
	<-n2.done
	i := impersonate(t, n1, "n2", 1<<40, ca.mutual("n2"), "secret", n2.address(rpcPort))
	n1.until("the attacker is connected", func() bool { return i.Up("n1") })
	memory := n1.memory()
	n1.resetPeak()
	const messages = 64<<20 - 64
	huge := append(raw{0x95, 1, 0, 0xa1, 'c', 1, 0xdd}, binary.BigEndian.AppendUint32(nil, messages)...)
	huge = append(huge, bytes.Repeat([]byte{1}, messages)...) // one byte each, eight in memory
	for _, method := range []string{"queue.deferred", "queue.do.many", "partition.batches", "no.such.method"} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		err := i.Call(ctx, "n1", method, huge, nil)
		cancel()
		t.Logf("%s of 64 MiB: %v; %d MiB more at the most so far", method, err, (n1.peakMemory()-memory)>>20)
		require.Error(t, err, method)
	}
	grown := n1.peakMemory() - memory
	require.Less(t, grown, int64(400<<20))
	require.False(t, n1.ended())
}

// raw is a request that is encoded already.
type raw []byte

// AppendBinary implements encoding.BinaryAppender, which rpc.Marshal calls.
func (r raw) AppendBinary(b []byte) ([]byte, error) { return append(b, r...), nil }

// hello is the first frame of a broker, well formed, with a name of the attacker's choice.
func hello(node, to string) string {
	header, err := rpc.Marshal(struct {
		Hello   rpc.Hello
		To      ident.Node
		Nonce   []byte
		Padding []byte
	}{rpc.Hello{Cluster: clusterName, Node: ident.Node(node), Incarnation: 1, Version: rpc.Version}, ident.Node(to), make([]byte, 32), nil})
	if err != nil {
		panic(err) // of constants and a string
	}
	const kindHello = 6
	frame := append([]byte{'L', 'F', 2, kindHello, 0, 0, 0, 0}, binary.LittleEndian.AppendUint32(nil, uint32(len(header)))...)
	frame = append(frame, make([]byte, 8)...)
	table := crc32.MakeTable(crc32.Castagnoli)
	frame = binary.LittleEndian.AppendUint32(frame, crc32.Update(crc32.Checksum(frame, table), table, header))
	return string(append(frame, header...))
}

// TestAPortScan: connections to each port with the first words of many protocols. The broker
// answers or closes, takes nothing of it, and goes on.
func TestAPortScan(t *testing.T) {
	for _, tls := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls=%t", tls), func(t *testing.T) {
			b := start(t, options{tls: tls})
			b.create("orders")
			rounds := 1
			if env.Long() {
				rounds = 100
			}
			sent, began := 0, time.Now()
			memory, before := b.memory(), b.topics()
			for range rounds {
				for port := range portsPerBroker {
					for _, say := range scans {
						conn, err := dial("127.66.0.7", b.address(port))
						if err != nil {
							continue // closed
						}
						sent++
						_, _ = io.WriteString(conn, say)
						_ = conn.(*net.TCPConn).CloseWrite()
						_ = conn.SetReadDeadline(time.Now().Add(time.Second))
						_, _ = io.Copy(io.Discard, io.LimitReader(conn, 1<<20))
						_ = conn.Close()
					}
				}
			}
			t.Logf("%d connections in %s, %d MiB more", sent, time.Since(began).Round(time.Millisecond), (b.memory()-memory)>>20)
			require.Greater(t, sent, 5*len(scans))
			require.Equal(t, before, b.topics())
			require.NoError(t, b.client(t, bootstrap).put("orders", "m"))
			require.True(t, b.isReady())
			b.terminate()
		})
	}
}

// scans are the first words of protocols that scanners try.
var scans = []string{
	"", "\r\n\r\n", "GET / HTTP/1.0\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03", "SSH-2.0-scan\r\n", "EHLO x\r\n", "\x00\x00\x00\x85\xff\x53\x4d\x42", "*1\r\n$4\r\nINFO\r\n", "\x03\x00\x00\x13\x0e\xe0\x00\x00",
	"  V1", "  V2", "  V2NOP\n", "LF\x02\x05\x00\x00\x00\x00", "\x80\x9e\x01\x03\x01", "CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: x\r\n\r\n", hello("n9", "n1"),
}
