package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// restarting stands before a broker, and ends its first connection when the client
// has finished a message, as a broker does that is restarted: told is closed then.
func restarting(t *testing.T, broker string) (address string, told chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	told = make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			client, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", broker)
			if err != nil {
				_ = client.Close()
				return
			}
			go func() { _, _ = io.Copy(client, to); _ = client.Close() }()
			go func() {
				defer to.Close()
				if n > 0 {
					_, _ = io.Copy(to, client)
					return
				}
				defer close(told)
				defer client.Close()
				untilFinished(to, client)
			}()
		}
	}()
	return l.Addr().String(), told
}

// untilFinished passes on what a client says, up to and with its first FIN.
func untilFinished(to io.Writer, client io.Reader) {
	b := make([]byte, 4096)
	for {
		n, err := client.Read(b)
		if _, failed := to.Write(b[:n]); failed != nil || err != nil || bytes.Contains(b[:n], []byte("FIN ")) {
			return
		}
	}
}

// Who tails a broker that is restarted goes on soon after, and misses nothing.
func TestTailComesBackAfterARestart(t *testing.T) {
	broker := tcpBroker(t)
	put := func(body string) {
		name := filepath.Join(t.TempDir(), "line")
		require.NoError(t, os.WriteFile(name, []byte(body), 0o600))
		_, err := run(t, time.Minute, "pub", "--topic=orders", "--nsqd-tcp-address="+broker, name)
		require.NoError(t, err)
	}
	put("one")
	address, told := restarting(t, broker)
	type end struct {
		out string
		err error
	}
	ended := make(chan end, 1)
	go func() {
		out, err := run(t, 20*time.Second, "tail", "--topic=orders", "--channel=ch", "-n=2", "--nsqd-tcp-address="+address)
		ended <- end{out, err}
	}()
	<-told
	put("two")
	e := <-ended
	require.NoError(t, e.err)
	require.Contains(t, e.out, "one\n")
	require.Contains(t, e.out, "two\n")
}
