package certcmd

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/rpc/peertls"
)

func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	target := &cli.Target{}
	return clitest.Run(t, cli.NewRoot(target, NewCert(target)), wait.Limit, append([]string{"cert"}, args...)...)
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := run(t, args...)
	require.NoError(t, err)
	return out
}

// issue makes an authority with certificates of two brokers and a client in a folder.
func issue(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, "ca", "--out", dir)
	must(t, "broker", "n1.example", "n2.example", "--also", "mq.example", "--also", "127.0.0.1", "--ca", dir, "--out", dir)
	must(t, "client", "shop", "--ca", dir, "--out", dir)
	return dir
}

func leaf(t *testing.T, cert, key string) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	return pair.Leaf
}

// TestPrivateKeysArePrivate: only the owner can read a key or enter a broker's folder.
func TestPrivateKeysArePrivate(t *testing.T) {
	dir := issue(t)
	for name, mode := range map[string]os.FileMode{
		"ca.key": 0o600, "ca.crt": 0o644, "n1.example": 0o700, "n1.example/ca.crt": 0o644, "n1.example/tls.crt": 0o644, "n1.example/tls.key": 0o600,
		"shop.key": 0o600, "shop.crt": 0o644,
	} {
		st, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, mode, st.Mode().Perm(), name)
	}
	require.NoFileExists(t, filepath.Join(dir, "n1.example", "ca.key"), "no broker needs it")
}

// TestBrokersAcceptTheFiles: a broker that loads the files accepts its own certificate and those of others at both ends of a
// connection, and no client's.
func TestBrokersAcceptTheFiles(t *testing.T) {
	dir := issue(t)
	identity := func(host string) *peertls.Identity {
		names, err := peertls.NewNames("*", "n1.example", "n2.example", "shop")
		require.NoError(t, err)
		at := filepath.Join(dir, host)
		i, err := peertls.Load(peertls.Files{Cert: filepath.Join(at, "tls.crt"), Key: filepath.Join(at, "tls.key"), CA: filepath.Join(at, "ca.crt")}, names, nil)
		require.NoError(t, err)
		require.NoError(t, i.Check(i.Leaf(), host))
		return i
	}
	first, second := identity("n1.example"), identity("n2.example")
	require.NoError(t, shake(first.Config(), second.Config(), "n1.example"))
	require.NoError(t, shake(first.Config(), second.Config(), "mq.example"))
	require.NoError(t, shake(first.Config(), second.Config(), "127.0.0.1"))
	require.Error(t, shake(first.Config(), second.Config(), "n2.example"), "it is not the other broker")
	require.ErrorIs(t, first.Check(second.Leaf(), "n1.example"), peertls.ErrName)

	client := leaf(t, filepath.Join(dir, "shop.crt"), filepath.Join(dir, "shop.key"))
	require.Equal(t, "shop", client.Subject.CommonName)
	require.ErrorIs(t, first.CheckAny(client), peertls.ErrName)
	require.ErrorIs(t, first.Check(client, "shop"), peertls.ErrName)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "shop.crt"), filepath.Join(dir, "shop.key"))
	require.NoError(t, err)
	as := &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: first.Config().RootCAs, ClientCAs: first.Config().RootCAs, ClientAuth: tls.RequireAndVerifyClientCert}
	require.NoError(t, shake(first.Config(), as, "n1.example"), "a client's certificate is good for a client")
	require.Error(t, shake(as, first.Config(), "shop"), "and not for a server")

	other := identityOf(t, issue(t), "n2.example")
	require.Error(t, shake(first.Config(), other.Config(), "n1.example"), "another authority")
}

func identityOf(t *testing.T, dir, host string) *peertls.Identity {
	t.Helper()
	at := filepath.Join(dir, host)
	i, err := peertls.Load(peertls.Files{Cert: filepath.Join(at, "tls.crt"), Key: filepath.Join(at, "tls.key"), CA: filepath.Join(at, "ca.crt")}, nil, nil)
	require.NoError(t, err)
	return i
}

// shake makes a handshake of a server and a client that dials a name; both must accept the other.
func shake(server, client *tls.Config, name string) error {
	client = client.Clone()
	client.ServerName = name
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	done := make(chan error, 1)
	go func() { // ends with the handshake, or the pipe
		s := tls.Server(a, server)
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("x"))
		}
		_ = a.Close()
		done <- err
	}()
	c := tls.Client(b, client)
	_, err := c.Read(make([]byte, 1)) // a server of TLS 1.3 refuses after the client's handshake
	_ = b.Close()
	if refused := <-done; refused != nil {
		return refused
	}
	return err
}

// TestNothingIsReplaced: a file or folder that exists stays as it is, and nothing else is written either.
func TestNothingIsReplaced(t *testing.T) {
	dir := issue(t)
	before := tree(t, dir)
	for _, args := range [][]string{
		{"ca", "--out", dir}, {"broker", "n3.example", "n1.example", "--ca", dir, "--out", dir}, {"client", "shop", "--ca", dir, "--out", dir},
	} {
		_, err := run(t, args...)
		require.ErrorContains(t, err, "exists, and nothing is replaced", args)
		require.Equal(t, before, tree(t, dir), args)
	}
	alone := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(alone, "ca.crt"), []byte("mine"), 0o600))
	_, err := run(t, "ca", "--out", alone)
	require.ErrorContains(t, err, "ca.crt exists")
	require.Equal(t, map[string]string{"ca.crt": "mine"}, tree(t, alone), "no key without a certificate")
}

// tree returns the content of all files below a folder; a folder has the content "/".
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		if name == "." || err != nil {
			return err
		}
		if found[name] = "/"; entry.IsDir() {
			return nil
		}
		text, err := os.ReadFile(path)
		found[name] = string(text)
		return err
	}))
	return found
}

// TestCertificatesEndWithTheirAuthority: one that outlives its authority would be refused without a reason.
func TestCertificatesEndWithTheirAuthority(t *testing.T) {
	dir := t.TempDir()
	must(t, "ca", "--out", dir, "--days", "10")
	var made issued
	require.NoError(t, json.Unmarshal([]byte(must(t, "broker", "n1.example", "--ca", dir, "--out", dir, "-o", "json")), &made))
	ca := leaf(t, filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"))
	require.Equal(t, ca.NotAfter, made.Until.UTC())
	require.Len(t, made.Files, 3)
	at := leaf(t, filepath.Join(dir, "n1.example", "tls.crt"), filepath.Join(dir, "n1.example", "tls.key"))
	require.Equal(t, ca.NotAfter, at.NotAfter)
	require.True(t, at.NotBefore.Before(time.Now().Add(-earlier/2)), "for hosts whose clocks are behind")
}

// TestFaults: each error names what to do.
func TestFaults(t *testing.T) {
	dir, stranger := issue(t), issue(t)
	mixed := t.TempDir()
	for from, name := range map[string]string{dir: "ca.crt", stranger: "ca.key"} {
		text, err := os.ReadFile(filepath.Join(from, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(mixed, name), text, 0o600))
	}
	leaves := t.TempDir() // the files of a broker as if they were an authority's
	for from, to := range map[string]string{"n1.example/tls.crt": "ca.crt", "n1.example/tls.key": "ca.key"} {
		text, err := os.ReadFile(filepath.Join(dir, from))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(leaves, to), text, 0o600))
	}
	expired := t.TempDir()
	certificate, secret, err := newAuthority("old", -time.Minute)
	require.NoError(t, err)
	require.NoError(t, write(nil, []file{{filepath.Join(expired, "ca.crt"), certificate, forAll}, {filepath.Join(expired, "ca.key"), secret, forOwner}}))
	for args, want := range map[string]string{
		"broker n3.example --ca " + t.TempDir():               "nsqctl cert ca makes an authority",
		"broker n3.example --ca " + mixed:                     "private key does not match",
		"broker n3.example --ca " + leaves:                    "not the certificate of an authority",
		"broker n3.example --ca " + expired:                   "has expired",
		"broker N3.example --ca " + dir:                       "small letters",
		"broker ../n3 --ca " + dir:                            "must be the host name",
		"broker 10.0.0.3 --ca " + dir:                         "goes into --also",
		"broker n3.example n3.example --ca " + dir:            "twice",
		"broker n3.example --also n3.example --ca " + dir:     "could then pose as",
		"broker n3.example --also a/b --ca " + dir:            "must be a host name, a wildcard",
		"broker n3.example --days 0 --ca " + dir:              "must be 1 to",
		"broker --ca " + dir:                                  "requires at least 1 arg(s)",
		"client a/b --ca " + dir:                              "a user's name",
		"client shop --ca " + dir + " --out " + dir + "/none": "no such file",
	} {
		_, err := run(t, strings.Fields(args)...)
		require.ErrorContains(t, err, want, args)
	}
}
