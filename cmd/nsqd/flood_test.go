package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
)

// TestAFloodOfThePortsForBrokers: three times as many connections as the process may open files, at each of the ports
// for other brokers, take no file of another part. The broker continues to serve, and stops while
// they are open.
func TestAFloodOfThePortsForBrokers(t *testing.T) {
	t.Parallel()
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			b := prepare(t)
			b.ulimit = 512
			t.Parallel()
			var handshakes sync.WaitGroup
			t.Cleanup(handshakes.Wait) // after the connections are closed
			var flags []string
			var stranger *tls.Config
			if secure {
				ca := certs.New(t)
				ca.Issue("n1")
				ca.IssueClient("client")
				stranger = ca.Client("client")
				flags = []string{"--rpc-tls-cert=" + ca.File("n1.pem"), "--rpc-tls-key=" + ca.File("n1.key"), "--rpc-tls-ca=" + ca.File("ca.pem")}
			}
			b.run(flags...)
			b.ready()
			c := b.dial()
			before := b.memory()
			ports := map[int]string{3: "rpc", 4: "etcd_client", 5: "etcd_peer"}
			for port := range ports {
				for i := range b.ulimit {
					conn, err := net.Dial("tcp", b.address(port))
					require.NoError(t, err)
					defer conn.Close()
					switch {
					case i%8 == 0:
						_, _ = conn.Write([]byte("PRI * HTTP/2.0\r\n")) // half of a preface; the connection may be gone
					case i%8 == 1 && secure:
						handshakes.Go(func() { _ = tls.Client(conn, stranger).Handshake() }) // refused, or displaced
					case i%8 == 2:
						_, _ = conn.Write([]byte("GET /members HTTP/1.1\r\nHost: x\r\n"))
					}
				}
			}
			for i := range 20 {
				c.put(fmt.Sprint("t", i%5), strings.Repeat("x", 64<<10)) // creates topics: the metadata answers
			}
			b.http.CloseIdleConnections()
			for _, path := range []string{"/healthz", "/readyz"} {
				status, text := b.get(path)
				require.Equal(t, http.StatusOK, status, text)
			}
			for _, port := range ports {
				require.Positive(t, b.metric("lockstep_"+port+"_refused_connections_total"), port)
			}
			if secure {
				bound := float64(divideFiles(uint64(b.ulimit)).etcd.Waiting)
				require.LessOrEqual(t, b.metric("lockstep_etcd_client_handshakes"), bound)
				require.LessOrEqual(t, b.metric("lockstep_etcd_peer_handshakes"), bound)
			}
			took := b.memory() - before
			t.Logf("%d connections at each of %d ports: %d KiB", b.ulimit, len(ports), took>>10)
			require.Less(t, took, memoryFactor*96<<20)
			require.NotContains(t, b.logged(), "too many open files")
			b.http.CloseIdleConnections()
			b.stop()
		})
	}
}
