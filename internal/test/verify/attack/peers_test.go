package attack

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/rpc"
)

// clusterName is the default of --cluster-name.
const clusterName = "lockstep"

// pair starts two brokers with TLS among them. Their authority has also issued a client's
// certificate, one for another server, and that of a third broker.
func pair(t *testing.T, flags ...string) (n1, n2 *broker, ca *certs.Authority) {
	ca = certs.New(t)
	ca.IssueClient("shop", "shop")
	ca.Issue("web", "web.example.org")
	ca.Issue("n3")
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
const never = time.Second

// impostor is a connection of an attacker to the port of the brokers: it claims to be one, and
// follows the protocol of package rpc.
type impostor struct {
	conn net.Conn
	in   *bufio.Reader
}

// The kinds of frames.
const (
	kindRequest, kindResponse, kindRest, kindHeartbeat, kindHello, kindProof, kindRefusal = 2, 3, 4, 5, 6, 7, 8

	classControl = 4
	pieceBytes   = 256 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame encodes a piece: its prelude and its header. whole is the length of the payload of the
// frame, here that in this piece.
func frame(kind, class byte, header []byte, whole, here int) []byte {
	b := []byte{'L', 'F', 2, kind, class, 0, 0, 0}
	for _, n := range []int{len(header), whole, here} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Update(crc32.Checksum(b, castagnoli), castagnoli, header))
	return append(b, header...)
}

// helloHeader is the header of a hello, with names of the attacker's choice.
func helloHeader(node, to string, inc ident.Incarnation) []byte {
	header, err := rpc.Marshal(struct {
		Hello   rpc.Hello
		To      ident.Node
		Nonce   []byte
		Padding []byte
	}{rpc.Hello{Cluster: clusterName, Node: ident.Node(node), Incarnation: inc, Version: rpc.Version}, ident.Node(to), make([]byte, 32), make([]byte, 2<<10)})
	if err != nil {
		panic(err) // of constants and strings
	}
	return header
}

// hello is the first frame of a broker.
func hello(node, to string) string {
	header := helloHeader(node, to, 1)
	return string(frame(kindHello, 0, header, 0, 0))
}

// impersonate makes the handshake of a broker with another one.
func impersonate(target *broker, as string, inc ident.Incarnation, config *tls.Config, token string) (*impostor, error) {
	raw, err := dial("", target.address(rpcPort))
	if err != nil {
		return nil, err
	}
	conn, err := secure(raw, config)
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(limit))
	i := &impostor{conn, bufio.NewReader(conn)}
	if err := i.shake(conn, helloHeader(as, target.name, inc), token); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return i, nil
}

func (i *impostor) shake(conn *tls.Conn, mine []byte, token string) error {
	if _, err := conn.Write(frame(kindHello, 0, mine, 0, 0)); err != nil {
		return err
	}
	theirs, err := i.read(kindHello)
	if err != nil {
		return err
	}
	state := conn.ConnectionState()
	bound, err := state.ExportKeyingMaterial("EXPORTER-lockstep-rpc", nil, sha256.Size)
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, []byte(token))
	for _, part := range [][]byte{[]byte("lockstep rpc dialler"), mine, theirs} {
		digest := sha256.Sum256(part)
		mac.Write(digest[:])
	}
	mac.Write(bound)
	if _, err := conn.Write(frame(kindProof, 0, mac.Sum(nil), 0, 0)); err != nil {
		return err
	}
	_, err = i.read(kindProof)
	return err
}

// read gives the header of the next frame, which must be of a kind.
func (i *impostor) read(want byte) ([]byte, error) {
	for {
		var prelude [24]byte
		if _, err := io.ReadFull(i.in, prelude[:]); err != nil {
			return nil, err
		}
		header := make([]byte, binary.LittleEndian.Uint32(prelude[8:]))
		if _, err := io.ReadFull(i.in, header); err != nil {
			return nil, err
		}
		if _, err := i.in.Discard(int(binary.LittleEndian.Uint32(prelude[16:]))); err != nil {
			return nil, err
		}
		switch prelude[3] {
		case want:
			return header, nil
		case kindHeartbeat:
		case kindRefusal:
			return nil, fmt.Errorf("refused: %q", header)
		default:
			return nil, fmt.Errorf("a frame of kind %d", prelude[3])
		}
	}
}

// call sends a request, and gives the header of the response.
func (i *impostor) call(method string, request []byte) ([]byte, error) {
	header, err := rpc.Marshal(struct {
		ID     uint64
		Method string
		WaitMS int64
	}{1, method, 5000})
	if err != nil {
		return nil, err
	}
	_ = i.conn.SetDeadline(time.Now().Add(10 * time.Second))
	piece := min(len(request), pieceBytes)
	if _, err := i.conn.Write(append(frame(kindRequest, classControl, header, len(request), piece), request[:piece]...)); err != nil {
		return nil, err
	}
	for request = request[piece:]; len(request) > 0; request = request[piece:] {
		piece = min(len(request), pieceBytes)
		if _, err := i.conn.Write(append(frame(kindRest, classControl, nil, 0, piece), request[:piece]...)); err != nil {
			return nil, err
		}
	}
	return i.read(kindResponse)
}

// TestOneCertificateIsOneBroker is finding 2, at the port of the brokers: a client's
// certificate, that of another server, and that of another broker do not make a broker of
// their owner; the broker that it claims to be continues.
func TestOneCertificateIsOneBroker(t *testing.T) {
	t.Parallel()
	n1, n2, ca := pair(t)
	n1.create("orders")
	for _, as := range []struct {
		node string
		inc  ident.Incarnation
	}{{"n2", 0}, {"n2", 1 << 40}, {"n1", 1 << 40}, {"n3", 1}} {
		for _, certificate := range []string{"shop", "web", "n3", ""} {
			if as.node == certificate {
				continue
			}
			i, err := impersonate(n1, as.node, as.inc, ca.Client(certificate), "")
			if err == nil {
				response, err := i.call("partition.ends", []byte{0xc0})
				t.Errorf("%s of incarnation %d with the certificate %q is let in; its call: %q, %v", as.node, as.inc, certificate, response, err)
				_ = i.conn.Close()
			}
		}
	}
	require.NoError(t, n1.client(t, bootstrap).put("orders", "m"), "the cluster goes on")
	n1.until("both are ready", func() bool { return n1.isReady() && n2.isReady() })
	i, err := impersonate(n1, "n2", 1<<40, ca.Client("n2"), "")
	require.NoError(t, err, "the door is there: a broker's own certificate opens it")
	_ = i.conn.Close()
}

// TestEtcdRefusesClients is finding 2, at the ports of the embedded etcd: a certificate of the
// brokers' authority that names no broker neither reads nor writes.
func TestEtcdRefusesClients(t *testing.T) {
	t.Parallel()
	n1, n2, ca := pair(t)
	connect := func(certificate string) error {
		c, err := clientv3.New(clientv3.Config{
			Endpoints: []string{"https://" + n1.address(etcdPort)}, TLS: ca.Client(certificate), DialTimeout: never, Logger: zap.NewNop(),
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
			web := &http.Client{Timeout: never, Transport: &http.Transport{TLSClientConfig: ca.Client(certificate), DisableKeepAlives: true}}
			for _, path := range []string{"/members", "/raft", "/raft/probing", "/lockstep/member?from=n2", "/version", "/lease/internal", "/members/hashkv"} {
				a, err := request(web, "", "GET", "https://"+at+path, "")
				require.True(t, err != nil || a.status == http.StatusForbidden || a.status == http.StatusUnauthorized, "the certificate %q gets %s: %d %s", certificate, path, a.status, a.body)
			}
		}
	}
	web := &http.Client{Timeout: never, Transport: &http.Transport{TLSClientConfig: ca.Client("n2"), DisableKeepAlives: true}}
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
	memory := n1.memory()
	n1.resetPeak()
	const messages = 64<<20 - 64
	huge := append([]byte{0x95, 1, 0, 0xa1, 'c', 1, 0xdd}, binary.BigEndian.AppendUint32(nil, messages)...)
	huge = append(huge, bytes.Repeat([]byte{1}, messages)...) // one byte each, eight in memory
	for _, method := range []string{"queue.deferred", "queue.do.many", "partition.batches", "no.such.method"} {
		i, err := impersonate(n1, "n2", 1<<40, ca.Client("n2"), "secret")
		require.NoError(t, err)
		response, err := i.call(method, huge)
		t.Logf("%s of 64 MiB: %q, %v; %d MiB more at the most so far", method, response, err, (n1.peakMemory()-memory)>>20)
		_ = i.conn.Close()
	}
	grown := n1.peakMemory() - memory
	require.Less(t, grown, int64(400<<20))
	require.False(t, n1.ended())
}

// TestAPortScan: connections to each port with the first words of many protocols. The broker
// answers or closes, takes nothing of it, and continues.
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
