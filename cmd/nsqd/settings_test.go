package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
)

// TestCheckConfig: all faults of the settings and of their files are printed at once, and nothing is created.
func TestCheckConfig(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	stock := filepath.Join(dir, "stock")
	require.NoError(t, os.Mkdir(stock, 0o700))
	write("stock/nsqd.dat", "")
	ca := certs.New(t)
	ca.Issue("n1")
	file := write("nsqd.toml", `
partitions = 0
tls_cert = "`+ca.File("n1.pem")+`"
tls_key = "`+write("bad.key", "x")+`"
rpc_tls_cert = "`+ca.File("n1.pem")+`"
rpc_tls_key = "`+ca.File("n1.key")+`"
rpc_tls_ca = "`+filepath.Join(dir, "missing.pem")+`"
cluster_token_file = "`+write("empty", "\n")+`"
etcd_endpoints = ["https://e:1"]
etcd_tls_ca = "`+write("ca.pem", "no certificate")+`"
etcd_username = "u"
etcd_password_file = "`+filepath.Join(dir, "missing")+`"
data_path = "`+stock+`"
`)
	code, stdout, stderr := refused(t, "--check-config", "--config="+file, "--max-rdy-count=many", "--require-users")
	require.Equal(t, 2, code)
	require.Empty(t, stdout)
	for _, fault := range []string{
		"--max-rdy-count", file + ": partitions", "--tls-cert, --tls-key", "missing.pem", "empty is empty", "no certificate in it", "missing: no such file", "stock nsqd",
	} {
		require.Contains(t, stderr, fault)
	}
	require.Equal(t, 8, strings.Count(stderr, "\n"), "a line each, and no help:\n%s", stderr)

	// Faults of the files alone.
	code, _, stderr = refused(t, "--check-config", "--data-path="+file, "--tls-root-ca-file="+file)
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "is not a directory")
	require.Contains(t, stderr, "--tls-root-ca-file")

	// Without --check-config invalid settings end with 1.
	code, _, _ = refused(t, "--config="+file)
	require.Equal(t, 1, code)

	// Valid settings are reported as valid, with the warnings of a start.
	data := filepath.Join(dir, "data")
	code, stdout, stderr = refused(t, "--check-config", "--data-path="+data, "--verbose", "--require-users", "--node-name=n1", "--broadcast-address=n1.example", "--rpc-address=0.0.0.0:1",
		"--rpc-tls-cert="+ca.File("n1.pem"), "--rpc-tls-key="+ca.File("n1.key"), "--rpc-tls-ca="+ca.File("ca.pem"))
	require.Zero(t, code, stderr)
	require.Equal(t, "the settings are valid\n", stdout)
	require.Contains(t, stderr, "warning: --verbose has no effect")
	require.Contains(t, stderr, "warning: other brokers will refuse this one's certificate")
	require.Contains(t, stderr, "n1.example")
	require.NoDirExists(t, data)
}

// TestPrintConfig: the process prints its effective settings, and does not start.
func TestPrintConfig(t *testing.T) {
	t.Setenv("NSQD_MSG_TIMEOUT", "5s")
	t.Setenv("NSQD_CLUSTER_TOKEN", "hunter2")
	code, stdout, stderr := refused(t, "--print-config", "--snappy=false", "--data-path=/nonexistent")
	require.Zero(t, code)
	require.Empty(t, stderr)
	require.Contains(t, stdout, "\nmsg_timeout = \"5s\" # environment NSQD_MSG_TIMEOUT\n")
	require.Contains(t, stdout, "\nsnappy = false # flag\n")
	require.NotContains(t, stdout, "hunter2")
	code, stdout, stderr = refused(t, "--print-config", "--tls-cert=c")
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "go together")
}

// TestEnvironment: /config returns settings, and no secret; GOMEMLIMIT has precedence over the container's limit.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	b := prepare(t)
	b.env = []string{"NSQD_CLUSTER_TOKEN=hunter2", "GOMEMLIMIT=300MiB"}
	b.run()
	b.ready()
	for path, want := range map[string]int{"/config/cluster_token": 400, "/config/cluster_token_file": 200} {
		status, text := b.get(path)
		require.Equal(t, want, status, path)
		require.NotContains(t, text, "hunter2")
	}
	require.NotContains(t, b.logged(), "hunter2")
	require.InDelta(t, 300<<20, b.metric("go_gc_gomemlimit_bytes"), 0)
	require.Contains(t, b.logged(), "memory limit set  from=GOMEMLIMIT limit=300MiB")
}
