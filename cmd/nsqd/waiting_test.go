package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/config"
)

// threeBrokers prepares a cluster with embedded etcd; run starts one of them.
func threeBrokers(t *testing.T, scheme string) (all []*broker, run func(i int, flags ...string)) {
	t.Helper()
	var cluster []string
	for i := range 3 {
		b := prepare(t)
		all = append(all, b)
		cluster = append(cluster, fmt.Sprintf("n%d=%s://%s", i+1, scheme, b.address(5)))
	}
	return all, func(i int, flags ...string) {
		t.Helper()
		all[i].run(append([]string{fmt.Sprintf("--node-name=n%d", i+1), "--etcd-initial-cluster=" + strings.Join(cluster, ",")}, flags...)...)
	}
}

// notReady waits until /readyz contains a text, and returns the whole answer.
func (b *broker) notReady(text string) (why string) {
	b.t.Helper()
	b.alive("says "+text, func() bool {
		resp, err := b.http.Get(b.url("/readyz"))
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusServiceUnavailable {
			return false
		}
		_, why = b.get("/readyz")
		return strings.Contains(why, text)
	})
	return why
}

// briefHold makes the clients of a broker that waits receive the reason soon.
const briefHold = "--put-hold=100ms"

// saysWhyItWaits: a waiting process is healthy and not ready, and every client gets the reason in a
// definite answer, while the process waits. The broker has briefHold.
func (b *broker) saysWhyItWaits(why string) {
	b.t.Helper()
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		for path, want := range map[string]int{"/healthz": http.StatusOK, "/ping": http.StatusServiceUnavailable, "/readyz": http.StatusServiceUnavailable} {
			request, err := http.NewRequest(method, b.url(path), nil)
			require.NoError(b.t, err)
			resp, err := b.http.Do(request)
			require.NoError(b.t, err)
			require.NoError(b.t, resp.Body.Close())
			require.Equal(b.t, want, resp.StatusCode, "%s %s", method, path)
		}
	}
	_, text := b.get("/ping")
	require.Contains(b.t, text, "NOK - not ready: "+why)
	for _, path := range []string{"/info", "/stats?format=json", "/v1/cluster", "/metrics", "/lookup?topic=t", "/ui", "/no/such/path"} {
		resp, err := b.http.Get(b.url(path))
		require.NoError(b.t, err)
		require.Equal(b.t, http.StatusServiceUnavailable, resp.StatusCode, path)
		require.NotEmpty(b.t, resp.Header.Get(api.NotReadyHeader), path)
		require.NoError(b.t, resp.Body.Close())
		_, text := b.get(path)
		require.Contains(b.t, text, why, path)
	}
	status, text := b.post("/pub?topic=t", "x")
	require.Equal(b.t, http.StatusServiceUnavailable, status)
	require.Contains(b.t, text, why)
	c := b.dial()
	c.identify(map[string]any{"client_id": "early"})
	c.command("x", "PUB t")
	_, text = c.next()
	require.Contains(b.t, text, "E_PUB_FAILED PUB failed not ready, not stored: "+why)
	c.command("x", "DPUB t 0")
	_, text = c.next()
	require.Contains(b.t, text, "E_DPUB_FAILED DPUB failed not ready, not stored: "+why)
	c.send("SUB t ch\n")
	_, text = c.next()
	require.Contains(b.t, text, "E_SUB_FAILED SUB failed not ready: "+why)
	c.expectEnd()
}

// TestWaitsForOtherMembers: a new cluster is founded by all of its members; the first one
// waits for the others and says so. Its clients need not reconnect.
func TestWaitsForOtherMembers(t *testing.T) {
	t.Parallel()
	all, run := threeBrokers(t, "http")
	run(0, briefHold)
	first := all[0]
	why := first.notReady("waiting for n2, n3: no metadata directory")
	require.Contains(t, why, "n2 at http://"+all[1].address(5)+": no process listens there")
	first.saysWhyItWaits("waiting for n2, n3: no metadata directory")
	c := first.dial()
	c.command("early", "PUB t")
	_, text := c.next()
	require.Contains(t, text, "E_PUB_FAILED")
	run(1)
	first.notReady("waiting for n3: no metadata directory")
	run(2)
	for _, b := range all {
		b.ready()
	}
	first.publishes()
	first.alive("publishes for the client of before", func() bool {
		c.command("served", "PUB t")
		_, text := c.next()
		return text == "OK"
	})
	_, text = first.get("/stats?format=json&topic=t")
	require.NotContains(t, text, "early")

	// Afterwards a majority is enough; one of three is no majority.
	for _, b := range all {
		b.signal(os.Kill)
		<-b.done
	}
	run(0, briefHold)
	first.saysWhyItWaits(first.waitsForMajority(all))
	first.stop()
	require.NotContains(t, first.logged(), "ERROR")
	run(0)
	run(2)
	first.ready()
	first.publishes()
}

// TestClientsOfAClusterThatStarts see a pause and no error, at its founding and after the end of all brokers, whatever
// they ask first.
func TestClientsOfAClusterThatStarts(t *testing.T) {
	t.Parallel()
	all, run := threeBrokers(t, "http")
	for round, topic := range []string{"founded", "again"} {
		var clients sync.WaitGroup
		failed := make(chan error, 100)
		client := func(asks func() error) { clients.Go(func() { failed <- asks() }) }
		for i, b := range all {
			run(i, "--put-hold=5m")
			b.alive("listens", func() bool { return b.answers(http.MethodGet, "/healthz") == nil })
			producer, consumer := b.dial(), b.dial()
			producer.command(`{}`, "IDENTIFY")
			consumer.command(`{}`, "IDENTIFY")
			client(func() error { return producer.all("OK", "PUB "+topic+"\n"+sized("m"), "DPUB "+topic+" 1\n"+sized("m")) })
			client(func() error { return consumer.all("OK", "SUB "+topic+" ch\n") })
			changes := []string{"/pub?topic=" + topic, fmt.Sprintf("/topic/create?topic=made%d", round), "/channel/create?topic=founded&channel=ch2", "/channel/pause?topic=founded&channel=ch"}
			for _, path := range changes[:2+2*round] {
				client(func() error { return b.answers(http.MethodPost, path) })
			}
			for _, path := range []string{"/stats", "/nodes", "/v1/cluster", "/metrics"} {
				client(func() error { return b.answers(http.MethodGet, path) })
			}
		}
		clients.Wait()
		close(failed)
		for err := range failed {
			require.NoError(t, err)
		}
		for _, b := range all {
			b.signal(os.Kill)
			<-b.done
			b.http.CloseIdleConnections()
		}
	}
}

// all reads the answer to IDENTIFY, and sends commands that have to be answered with text.
func (c *client) all(text string, commands ...string) error {
	for _, command := range append([]string{""}, commands...) {
		if _, err := io.WriteString(c.conn, command); err != nil {
			return err
		}
		if _, got := c.next(); got != text {
			return fmt.Errorf("%q is answered %q", command, got)
		}
	}
	return nil
}

// answers sends a request that has to succeed.
func (b *broker) answers(method, path string) error {
	request, err := http.NewRequest(method, b.url(path), strings.NewReader("m"))
	if err != nil {
		return err
	}
	resp, err := b.http.Do(request)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s %s", method, path, resp.Status, text)
	}
	return err
}

// publishes waits until the broker takes a message: for some time after its start, or when the
// metadata has paused, it may not lead.
func (b *broker) publishes() {
	b.t.Helper()
	b.alive("publishes", func() bool { status, _ := b.post("/pub?topic=t", "x"); return status == http.StatusOK })
}

// waitsForMajority waits until the first of three reports the missing majority.
func (b *broker) waitsForMajority(all []*broker) (why string) {
	b.t.Helper()
	why = "waiting for n2, n3: 1 of 3 members of the metadata run, 2 are needed (n2 at http://" + all[1].address(5) + ": no process listens there"
	b.notReady(why)
	return why
}

// TestWaitsForAnExternalEtcd: the etcd starts later than the broker, however late.
func TestWaitsForAnExternalEtcd(t *testing.T) {
	t.Parallel()
	b := prepare(t)
	base := freePorts(t)
	endpoint := fmt.Sprintf("http://127.0.0.1:%d", base+4)
	b.run("--etcd-endpoints="+endpoint, briefHold)
	b.notReady(endpoint + ": dial tcp " + strings.TrimPrefix(endpoint, "http://") + ": connect: connection refused")
	b.saysWhyItWaits("waiting for the metadata: ")
	b.stop()
	require.NotContains(t, b.logged(), "ERROR")
	b.run("--etcd-endpoints=" + endpoint)
	b.notReady("waiting for the metadata")
	o := etcd.Options{Name: "external", Dir: t.TempDir(), ClientAddress: strings.TrimPrefix(endpoint, "http://"), PeerAddress: fmt.Sprintf("127.0.0.1:%d", base+5)}
	s, err := etcd.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	b.ready()
	b.publishes()
}

// TestMetadataGoesAwayDuringTheStart: it fails between the first answer and the registration.
// The broker waits and does not end.
func TestMetadataGoesAwayDuringTheStart(t *testing.T) {
	t.Parallel()
	_, endpoint := startExternalEtcd(t, etcd.TLS{})
	for _, cut := range []string{"/etcdserverpb.KV/Txn", "/etcdserverpb.Lease/LeaseGrant"} {
		t.Run(cut, func(t *testing.T) {
			var fails atomic.Bool
			var failed atomic.Int32
			fails.Store(true)
			through := grpcProxy(t, endpoint, func(method string) bool {
				if method == cut && fails.Load() {
					failed.Add(1)
					return true
				}
				return false
			})
			b := prepare(t)
			b.run("--etcd-endpoints="+through, "--cluster-name="+strings.NewReplacer("/", "", ".", "").Replace(cut))
			b.alive("tries again", func() bool { return failed.Load() > 3 })
			status, _ := b.get("/readyz")
			require.Equal(t, http.StatusServiceUnavailable, status)
			fails.Store(false)
			b.ready()
			b.publishes()
			b.stop()
		})
	}
}

// TestFaultsThatEndTheProcess: the first fault counts, also during the start.
func TestFaultsThatEndTheProcess(t *testing.T) {
	ctx, fail := context.WithCancelCause(t.Context())
	p := newProcess(config.Options{}, nil, nil, fail)
	first, second := errors.New("first"), errors.New("second")
	faults := make(chan error, 1)
	p.watch(faults)
	require.NoError(t, faultOf(ctx))
	faults <- first
	<-ctx.Done()
	p.fail(fault{second})
	require.Equal(t, first, faultOf(ctx))
	p.watch(make(chan error)) // without a fault the watch ends with the process
	p.endRunning()
	p.background.Wait()
}

// grpcProxy forwards gRPC calls to an endpoint, except those that are to fail.
func grpcProxy(t *testing.T, endpoint string, fails func(method string) bool) (through string) {
	t.Helper()
	conn, err := grpc.NewClient(strings.TrimPrefix(endpoint, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{})))
	require.NoError(t, err)
	s := grpc.NewServer(grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(func(_ any, in grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(in)
		if fails(method) {
			return status.Error(codes.Unavailable, "cut")
		}
		header, _ := metadata.FromIncomingContext(in.Context())
		ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(in.Context(), header))
		defer cancel()
		out, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
		if err != nil {
			return err
		}
		go func() { // ends with the call
			for m := []byte(nil); in.RecvMsg(&m) == nil && out.SendMsg(&m) == nil; m = nil {
			}
			_ = out.CloseSend()
		}()
		for {
			var m []byte
			if err := out.RecvMsg(&m); err != nil {
				return status.Convert(ignoreEOF(err)).Err()
			}
			if err := in.SendMsg(&m); err != nil {
				return err
			}
		}
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan struct{})
	go func() { _ = s.Serve(l); close(served) }()
	t.Cleanup(func() { s.Stop(); <-served; _ = conn.Close() })
	return "http://" + l.Addr().String()
}

// rawCodec passes messages unchanged.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), b...)
	return nil
}
func (rawCodec) Name() string { return "proto" }

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
