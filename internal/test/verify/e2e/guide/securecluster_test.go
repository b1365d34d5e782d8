package guide

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// TestGuideSecureCluster follows secure-cluster.md on hosts of its own: their commands as they are written.
func TestGuideSecureCluster(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	if os.Getenv(e2etest.NetworkEnv) == "" {
		e2etest.InNamespace(t, e2etest.NetworkEnv+"=1")
		return
	}
	for _, program := range []string{"ip", "nsenter", "mount", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			env.Missing(t, program, err)
		}
	}
	text, err := os.ReadFile(guideFolder + "secure-cluster.md")
	require.NoError(t, err)
	page := map[string]string{}
	for _, m := range e2etest.GuideBlock.FindAllStringSubmatch(string(text), -1) {
		page[m[1]] = strings.TrimSpace(m[2])
	}
	first, _, _ := strings.Cut(string(text), "\n## ")
	require.Less(t, strings.Count(first, "\n"), 55, "it fits a screen")
	require.LessOrEqual(t, strings.Count(page["start"], "--"), 4, "a few settings are enough")

	h := newHosts(t, "n1.example", "n2.example", "n3.example", "n4.example")
	h.here(page["certificates"])
	three := h.names[:3]
	for _, name := range three {
		h.start(name, page["start"])
		require.Equal(t, "600\n", h.on(name, "stat -c %a /etc/lockstep/tls/tls.key"))
		h.on(name, "test ! -e /etc/lockstep/tls/ca.key")
	}
	status := h.on("n1.example", page["administrator"])
	for _, name := range three {
		require.Regexp(t, `(?m)^`+name+` +true +`+name+`:4150 `, status)
	}
	require.Regexp(t, `(?s)an order\n.*OK$`, h.on("n1.example", page["client"]))
	require.Contains(t, h.on("n1.example", "nsqctl topic describe orders"), "replication factor 3")

	// The page promises TLS and users: no client without TLS, and none without a login.
	plain := h.on("n2.example", "curl -sS http://n1.example:4151/stats")
	require.Contains(t, plain, "TLS_REQUIRED")
	stranger := h.on("n2.example", "curl -sS --cacert /etc/lockstep/tls/ca.crt https://n1.example:4152/stats")
	require.Contains(t, stranger, "UNAUTHORIZED")

	// A fourth broker. Without an invitation it waits, and its log says why.
	h.here(page["certificate"])
	h.start("n4.example", page["join"])
	wait.Until(t, func() bool { return strings.Contains(h.logged("n4.example"), "run nsqctl cluster invite") }, "n4 says why it waits: %s", h.logs())
	require.Contains(t, h.logged("n4.example"), "it refuses this broker: no broker with a name of its certificate")
	require.Contains(t, h.on("n1.example", page["invite"]), "n4.example may join until")
	h.on("n4.example", "until nsqctl health --ready 2>/dev/null; do sleep 1; done")
	require.Regexp(t, `(?m)^n4\.example +true +n4\.example:4150 `, h.on("n1.example", page["balance"]))
	require.Equal(t, 2, strings.Count(h.on("n1.example", "nsqctl profile list"), "n4.example:"), "the profile has it")
	require.Equal(t, "BROKER  MAY JOIN UNTIL\n", h.on("n1.example", "nsqctl cluster invite"), "it is used up")
	require.Contains(t, h.on("n1.example", "nsqctl audit"), "n4.example")
	for _, name := range three {
		require.Equal(t, 1, strings.Count(h.logged(name), "ready to serve clients"), "%s was not restarted", name)
	}
}
