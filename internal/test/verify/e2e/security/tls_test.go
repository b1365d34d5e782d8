package security

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// operator runs nsqctl against a broker that does not answer plain text.
type operator struct {
	*e2etest.Cluster
	ca    *certs.Authority
	token string // file with the token that administers: an auth service knows no administrator
}

// run is one command line, with whatever the brokers ask for.
func (o operator) run(args ...string) string {
	o.T.Helper()
	out, err := o.try(append(args, "--tls-cert", o.ca.File("operator.pem"), "--tls-key", o.ca.File("operator.key"), "--auth-secret", "open sesame", "--token-file", o.token)...)
	require.NoError(o.T, err, "nsqctl %v: %s", args, out)
	return out
}

// try trusts the brokers and shows them nothing.
func (o operator) try(args ...string) (string, error) {
	b := o.Brokers[1]
	args = append(args, "--tls-root-ca-file", o.ca.File("ca.pem"), "--nsqd-tcp-address", b.TCP, "--nsqd-http-address", b.HTTPS)
	out, err := exec.Command(e2etest.Built.Path("nsqctl"), args...).CombinedOutput()
	return string(out), err
}

// TestOperatorBehindTLS: nsqctl publishes, consumes, measures and administers
// where all clients must speak TLS, show a certificate and give a secret, also for
// partitions that other brokers lead. Without one of these it prints the reason.
func TestOperatorBehindTLS(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	ca := certs.New(t)
	ca.Issue("broker")
	ca.Issue("operator")
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte(strings.Repeat("t", 32)), 0o600))
	c := e2etest.LayOut(t, e2etest.FreePorts(t, 2), 2, "--bootstrap-admin-token-file="+token, "--tls-required=true", "--tls-client-auth-policy=require-verify", "--tls-root-ca-file="+ca.File("ca.pem"),
		"--tls-cert="+ca.File("broker.pem"), "--tls-key="+ca.File("broker.key"), "--auth-http-address="+authorizer(t, "open sesame"))
	require.NoError(t, c.StartAll())
	o := operator{c, ca, token}
	c.Until("a cluster of two", func() bool {
		out, _ := o.try("topic", "create", e2etest.Topic, "--partitions", "4", "--tls-cert", ca.File("operator.pem"), "--tls-key", ca.File("operator.key"), "--token-file", token)
		return strings.Contains(out, "replication factor 2")
	})

	var lines strings.Builder
	for i := range 40 {
		fmt.Fprintf(&lines, "message %d\n", i)
	}
	file := filepath.Join(t.TempDir(), "lines")
	require.NoError(t, os.WriteFile(file, []byte(lines.String()), 0o600))
	require.Contains(t, o.run("pub", "--topic", e2etest.Topic, file), "40 messages answered OK")
	o.run("channel", "create", e2etest.Topic, e2etest.Channel)
	require.Equal(t, 40, strings.Count(o.run("tail", "--topic", e2etest.Topic, "--channel", e2etest.Channel, "-n", "40"), "message "))
	require.Contains(t, o.run("cluster", "status"), "n2")
	require.Equal(t, 4, strings.Count(o.run("check", e2etest.Topic), ": equal"), "the brokers' HTTPS ports")
	require.Equal(t, 40, strings.Count(o.run("peek", e2etest.Topic, "-n", "40"), "message "))
	require.Contains(t, o.run("stats", "--topic", e2etest.Topic), e2etest.Channel)
	require.Contains(t, o.run("bench", "--workloads", "pub-8,consume-1", "--scale", "0.001", "--repeat", "1"), "consume-1")

	_, err := o.try("cluster", "status")
	require.Error(t, err, "no certificate")
	out, err := c.Nsqctl("cluster", "status")
	require.Error(t, err)
	require.Contains(t, out, "TLS_REQUIRED")
	out, err = o.try("pub", "--topic", e2etest.Topic, "--retry", "0s", file, "--tls-cert", ca.File("operator.pem"), "--tls-key", ca.File("operator.key"))
	require.Error(t, err, "no secret")
	require.Contains(t, out, "E_AUTH_FIRST the broker requires a secret")
}

// authorizer allows everything to clients with the secret.
func authorizer(t *testing.T, secret string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("secret") != secret {
			http.Error(w, "who are you?", http.StatusForbidden)
			return
		}
		fmt.Fprint(w, `{"ttl":60,"authorizations":[{"topic":".*","channels":[".*"],"permissions":["publish","subscribe"]}]}`)
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}
