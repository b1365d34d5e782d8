package peertls_test

import (
	"crypto/tls"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
	"github.com/lockstepmq/lockstep/rpc/peertls"
)

// readEvery is the time after which a change of the files is in use.
const readEvery = 250 * time.Millisecond

// handshake connects two identities and returns the serial number of the server's certificate.
func handshake(t *testing.T, server, by *peertls.Identity) (string, error) {
	t.Helper()
	raw, c := net.Pipe()
	refused := make(chan error, 1)
	go func() { // ends with the connection
		defer c.Close()
		s := tls.Server(c, server.Config())
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte("x"))
		}
		refused <- err
	}()
	defer raw.Close()
	config := by.Config().Clone()
	config.ServerName = "127.0.0.1"
	client := tls.Client(raw, config)
	_, err := client.Read(make([]byte, 1)) // in TLS 1.3 a server refuses after the client's handshake
	if served := <-refused; served != nil {
		return "", served
	}
	if err != nil {
		return "", err
	}
	return client.ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

func files(a *certs.Authority, name string) peertls.Files {
	return peertls.Files{Cert: a.File(name + ".pem"), Key: a.File(name + ".key"), CA: a.File("ca.pem")}
}

// TestFilesAreRenewed: connections use a new certificate and a new authority without a restart,
// on both ends. Files that cannot be used change nothing, and are logged once.
func TestFilesAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, next := certs.New(t), certs.New(t)
		old.Issue("n1")
		old.Issue("n2")
		next.Issue("n1")
		next.Issue("n2")
		log, logged := logtest.NewNullLogger()
		n1, err := peertls.Load(files(old, "n1"), nil, log)
		require.NoError(t, err)
		n2, err := peertls.Load(files(old, "n2"), nil, log)
		require.NoError(t, err)
		first, err := handshake(t, n1, n2)
		require.NoError(t, err)

		// A new certificate of the same authority.
		old.Issue("n1")
		time.Sleep(readEvery)
		second, err := handshake(t, n1, n2)
		require.NoError(t, err)
		require.NotEqual(t, first, second)

		// Files that cannot be used.
		good := read(t, old.File("n1.pem"))
		logged.Reset()
		write(t, old.File("n1.pem"), "nothing")
		for range 3 {
			time.Sleep(readEvery)
			_ = n1.Config()
			require.Equal(t, 1, errorsIn(logged), "logged once")
		}
		serial, err := handshake(t, n1, n2)
		require.NoError(t, err)
		require.Equal(t, second, serial)
		require.NoError(t, os.Remove(old.File("n1.pem")))
		for range 2 {
			time.Sleep(readEvery)
			_, err := handshake(t, n1, n2)
			require.NoError(t, err, "a file that is gone")
		}
		write(t, old.File("n1.pem"), good)

		// Another authority: first both are trusted, then the certificates change, then the old
		// authority goes.
		ca := old.File("ca.pem")
		write(t, ca, read(t, ca)+read(t, next.File("ca.pem")))
		renewed, err := peertls.Load(peertls.Files{Cert: next.File("n2.pem"), Key: next.File("n2.key"), CA: ca}, nil, log)
		require.NoError(t, err)
		time.Sleep(readEvery)
		_, err = handshake(t, n1, renewed)
		require.NoError(t, err)
		_, err = handshake(t, renewed, n2)
		require.NoError(t, err)
		for _, name := range []string{"n1", "n2"} {
			write(t, old.File(name+".key"), read(t, next.File(name+".key")))
			write(t, old.File(name+".pem"), read(t, next.File(name+".pem")))
		}
		write(t, ca, read(t, next.File("ca.pem")))
		time.Sleep(readEvery)
		only, err := peertls.Load(files(next, "n2"), nil, log)
		require.NoError(t, err)
		_, err = handshake(t, n1, only)
		require.NoError(t, err)
		_, err = handshake(t, n1, n2)
		require.NoError(t, err)
	})
}

func errorsIn(logged *logtest.Hook) (n int) {
	for _, e := range logged.AllEntries() {
		if e.Level == logrus.ErrorLevel {
			n++
		}
	}
	return n
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(b)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
}

func TestFilesThatCannotBeLoaded(t *testing.T) {
	ca := certs.New(t)
	ca.Issue("n1")
	ca.Issue("n2")
	none, err := peertls.Load(peertls.Files{}, nil, nil)
	require.NoError(t, err)
	require.Nil(t, none)
	for _, f := range []peertls.Files{
		{Cert: "/nowhere/n1.pem", Key: ca.File("n1.key"), CA: ca.File("ca.pem")},
		{Cert: ca.File("n1.pem"), Key: ca.File("n2.key"), CA: ca.File("ca.pem")},
		{Cert: ca.File("n1.pem"), Key: ca.File("n1.key"), CA: ca.File("n1.key")},
	} {
		_, err := peertls.Load(f, nil, nil)
		require.Error(t, err)
	}
	only, err := peertls.Load(peertls.Files{CA: ca.File("ca.pem")}, nil, nil)
	require.NoError(t, err)
	require.Nil(t, only.Leaf())
}
