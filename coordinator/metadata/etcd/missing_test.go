package etcd_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// reasonsOf returns the reasons of a member that waits for its majority.
func reasonsOf(t *testing.T, o etcd.Options) (why chan string) {
	t.Helper()
	why = make(chan string, 100)
	o.Waiting = func(text string) { why <- text }
	s := start(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { _ = s.Wait(ctx); close(done) }() // ends with the test
	t.Cleanup(func() { cancel(); <-done })
	return why
}

func receives(t *testing.T, why chan string, parts ...string) {
	t.Helper()
	wait.Until(t, func() bool {
		last := wait.For(t, why, "a reason")
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(last, part) })
	}, "it says %q", parts)
}

// TestWhyThereIsNoMajority: a waiting member names the missing ones, and the faults
// between them.
func TestWhyThereIsNoMajority(t *testing.T) {
	t.Parallel()
	members := three(t)
	why := reasonsOf(t, members[0])
	receives(t, why, "waiting for n2, n3: 1 of 3 members of the metadata run, 2 are needed",
		"n2 at http://"+members[1].PeerAddress+": no process listens there")
	ready(t, start(t, members[1]))
}

// TestAMemberThatDoesNotAnswerIsNotWithoutALeader: while the members have a leader, the fault lies in this member.
func TestAMemberThatDoesNotAnswerIsNotWithoutALeader(t *testing.T) {
	t.Parallel()
	members := several(t, 3, func(o *etcd.Options) { o.Heartbeat, o.Election = 100*time.Millisecond, time.Second })
	var servers []*etcd.Server
	for _, m := range openAll(t, members) {
		servers = append(servers, m.server)
	}
	leader, rest := leaderOf(t, servers)
	why := rest[0].Missing(t.Context())
	require.Regexp(t, `^3 of 3 members of the metadata run, n\d leads them, and this one does not answer yet: it has applied \d+ of \d+ changes$`, why)
	leader.Stop()
	wait.Until(t, func() bool { // the others have another one
		why = rest[0].Missing(t.Context())
		dead := why[len("waiting for "):][:len("n1")]
		require.NotContains(t, why, dead+" leads")
		return strings.Contains(why, ": 2 of 3 members of the metadata run, n")
	}, "it names the new leader")
}

// pair returns two members of three; each is configured as if all used its TLS settings.
func pair(t *testing.T, n1, n2 etcd.TLS) []etcd.Options {
	members := three(t)[:2]
	for i, security := range []etcd.TLS{n1, n2} {
		if members[i].TLS = security; security.Cert != "" {
			members[i].InitialCluster = strings.ReplaceAll(members[i].InitialCluster, "http:", "https:")
		}
	}
	return members
}

// TestMembersThatDoNotTrustEachOther: a waiting member names the peer and the TLS error,
// before the member has a log and while it waits for a majority.
func TestMembersThatDoNotTrustEachOther(t *testing.T) {
	t.Parallel()
	ca, otherCA := certs.New(t), certs.New(t)
	ca.Issue("n")
	otherCA.Issue("n")
	files := func(cert, trusted *certs.Authority) etcd.TLS {
		return etcd.TLS{Cert: cert.File("n.pem"), Key: cert.File("n.key"), CA: trusted.File("ca.pem")}
	}
	const (
		unknown = "TLS: this broker refuses its certificate: x509: certificate signed by unknown authority"
		refused = "TLS: it refuses this broker: tls: "
	)
	for name, test := range map[string]struct {
		n1, n2         etcd.TLS
		n1Says, n2Says string // about each other
		self           string // n1 about itself
	}{
		"authorities differ": {n1: files(ca, ca), n2: files(otherCA, otherCA), n1Says: unknown, n2Says: unknown},
		"wrong authority":    {n1: files(ca, otherCA), n2: files(otherCA, otherCA), n1Says: refused, n2Says: unknown, self: unknown},
		"one has no TLS": {n1: files(ca, ca), n1Says: "TLS: it does not use TLS, this broker does (--rpc-tls-cert)",
			n2Says: "it uses TLS, this broker does not (--rpc-tls-cert)"},
	} {
		t.Run(name+", founding", func(t *testing.T) {
			t.Parallel()
			members := pair(t, test.n1, test.n2)
			n1, n2 := opening(t, members[0]), opening(t, members[1])
			n1.waits("n2 at https://" + members[1].PeerAddress + ": " + test.n1Says)
			require.Contains(t, n1.waiting(), "waiting for n2, n3: no metadata directory")
			if test.self != "" {
				n1.waits("this broker at its own address: " + test.self)
			}
			n2.waits(test.n2Says)
			require.Contains(t, n2.waiting(), "waiting for n1, n3: no metadata directory")
		})
		t.Run(name+", without a majority", func(t *testing.T) {
			t.Parallel()
			members := pair(t, test.n1, test.n2)
			n1, n2 := reasonsOf(t, members[0]), reasonsOf(t, members[1])
			receives(t, n1, "waiting for n2, n3: 1 of 3", "n2 at https://"+members[1].PeerAddress+": "+test.n1Says)
			n2Says := test.n2Says
			if test.n2.Cert == "" { // etcd's own port closes the connection, where a broker's port answers
				n2Says = "it closes the connection (is TLS configured on one side only?"
			}
			receives(t, n2, "waiting for n1, n3: 1 of 3", n2Says)
		})
	}
}

// TestAChangeThatReachesNobodyIsRepeated: a connection that breaks within a request does not
// end a member that only waits for the others.
func TestAChangeThatReachesNobodyIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := logrus.New()
		log.SetOutput(io.Discard)
		for _, lost := range []error{
			status.Error(codes.Unavailable, "error reading from server: EOF"), rpctypes.ErrStopped, rpctypes.ErrNoLeader,
		} {
			tries := 0
			require.NoError(t, etcd.RetryChange(t.Context(), log, func(context.Context) error {
				if tries++; tries == 1 {
					return lost
				}
				return nil
			}), lost)
		}
		require.ErrorIs(t, etcd.RetryChange(t.Context(), log, func(context.Context) error { return rpctypes.ErrMemberNotFound }), rpctypes.ErrMemberNotFound)
	})
}
