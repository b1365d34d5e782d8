package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
)

// startExternalEtcd runs an external etcd for brokers and returns its endpoint.
func startExternalEtcd(t *testing.T, security etcd.TLS) (*etcd.Server, string) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	log := logrus.New()
	log.SetLevel(logrus.FatalLevel)
	base := freePorts(t)
	s, err := etcd.Start(t.Context(), etcd.Options{
		Name: "external", Dir: t.TempDir(), TLS: security, Log: log,
		ClientAddress: fmt.Sprintf("127.0.0.1:%d", base+4), PeerAddress: fmt.Sprintf("127.0.0.1:%d", base+5),
	})
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	require.NoError(t, s.Wait(ctx))
	return s, s.Endpoints()[0]
}

// secretFile writes a password or token.
func secretFile(t *testing.T, secret string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(name, []byte(secret+"\n"), 0o600))
	return name
}

// says waits for a text in the log.
func (b *broker) says(text string) {
	b.t.Helper()
	b.eventually("says "+text, func() bool {
		if b.ended() {
			require.Contains(b.t, b.logged(), text)
		}
		return strings.Contains(b.logged(), text)
	})
}

// TestExternalEtcd: an etcd that requires certificates and a password admits only a broker
// with both; a broker without logs the reason.
func TestExternalEtcd(t *testing.T) {
	t.Parallel()
	ca, stranger := certs.New(t), certs.New(t)
	ca.Issue("etcd")
	ca.Issue("n1")
	stranger.Issue("n1")
	s, endpoint := startExternalEtcd(t, etcd.TLS{Cert: ca.File("etcd.pem"), Key: ca.File("etcd.key"), CA: ca.File("ca.pem")})
	require.NoError(t, s.RequireLogin(t.Context(), "lockstep", "s3cret"))

	identity := func(a *certs.Authority) []string {
		return []string{"--etcd-tls-cert=" + a.File("n1.pem"), "--etcd-tls-key=" + a.File("n1.key"), "--etcd-tls-ca=" + ca.File("ca.pem")}
	}
	login := func(password string) []string {
		return []string{"--etcd-username=lockstep", "--etcd-password-file=" + secretFile(t, password)}
	}
	refused := map[string]*broker{}
	for why, flags := range map[string][]string{
		"authentication failed, invalid user ID or password": append(identity(ca), login("wrong")...),
		"permission denied":             identity(ca), // its certificate names an unknown user
		"unknown certificate authority": append(identity(stranger), login("s3cret")...),
		"signed by unknown authority":   {"--etcd-tls-ca=" + stranger.File("ca.pem")},
		"certificate required":          {"--etcd-tls-ca=" + ca.File("ca.pem")},
	} {
		refused[why] = prepare(t)
		refused[why].run(append(flags, "--etcd-endpoints="+endpoint)...)
	}
	for why, b := range refused {
		b.says(why)
	}
	start(t, append(append(identity(ca), login("s3cret")...), "--etcd-endpoints="+endpoint)...)
	b := prepare(t)
	b.env = []string{"NSQD_ETCD_USERNAME=lockstep", "NSQD_ETCD_PASSWORD=s3cret"} // in place of a file
	b.run(append(identity(ca), "--etcd-endpoints="+endpoint, "--cluster-name=other")...)
	b.ready()
	b.publishes()
	require.NoDirExists(t, filepath.Join(b.dir, "etcd"), "nothing is embedded")
	_, text := b.get("/v1/cluster")
	require.Contains(t, text, `"cluster":"other"`)
}

// member prepares a broker of a cluster with an external etcd.
func member(t *testing.T, name, endpoint string) (b *broker, flags []string) {
	t.Helper()
	return prepare(t), []string{"--node-name=" + name, "--etcd-endpoints=" + endpoint, "--replication-factor=2", "--min-in-sync=2"}
}

// TestBrokersTrustEachOther: brokers with different tokens or certificates do not connect, and
// log the reason; with the same ones they replicate.
func TestBrokersTrustEachOther(t *testing.T) {
	t.Parallel()
	_, endpoint := startExternalEtcd(t, etcd.TLS{})
	ca, stranger := certs.New(t), certs.New(t)
	ca.Issue("n1")
	ca.Issue("n2")
	stranger.Issue("n2")
	token := "--cluster-token-file=" + secretFile(t, "one")
	identity := func(a *certs.Authority, name string) []string {
		return []string{"--rpc-tls-cert=" + a.File(name+".pem"), "--rpc-tls-key=" + a.File(name+".key"), "--rpc-tls-ca=" + a.File("ca.pem")}
	}
	n1, flags := member(t, "n1", endpoint)
	n1.run(append(append(flags, token), identity(ca, "n1")...)...)
	n1.ready()
	for _, wrong := range []struct {
		flags  []string
		n1, n2 string // their log texts, "" = any
	}{
		{[]string{token}, "first record does not look like a TLS handshake", ""},
		{append(identity(stranger, "n2"), token), "certificate", "certificate"},
		{append(identity(ca, "n2"), "--cluster-token-file="+secretFile(t, "another")), "cluster token differs", "cluster token differs"},
	} {
		n2, flags := member(t, "n2", endpoint)
		n2.run(append(flags, wrong.flags...)...)
		n1.says(wrong.n1)
		n2.says(wrong.n2)
		n2.signal(os.Kill)
		<-n2.done
	}
	n2, flags := member(t, "n2", endpoint)
	n2.env = []string{"NSQD_CLUSTER_TOKEN=one"} // the same token, from the environment
	n2.run(append(flags, identity(ca, "n2")...)...)
	n2.ready()
	n1.eventually("replicates", func() bool { status, _ := n1.post("/pub?topic=orders", "x"); return status == http.StatusOK })
	_, text := n1.get("/v1/cluster")
	require.Contains(t, text, `"replication_factor":2,"min_in_sync":2`)
	for _, b := range []*broker{n1, n2} {
		b.alive("shows the topic, led here or there", func() bool { // a registration that was lost comes back
			_, text := b.get("/v1/console/topics")
			return strings.Contains(text, `"topic":"orders"`) && strings.Contains(text, `"unreachable":[]`)
		})
	}
}
