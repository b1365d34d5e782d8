package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// restarting is a proxy before a broker. It ends its first connection when the client has
// finished a message, like a restarted broker, and closes finished then. It accepts so many connections.
func restarting(t *testing.T, broker string, connections int) (address string, finished chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	finished = make(chan struct{})
	go func() {
		defer l.Close()
		for n := range connections {
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
				defer close(finished)
				defer client.Close()
				untilFinished(to, client)
			}()
		}
	}()
	return l.Addr().String(), finished
}

// untilFinished forwards the client's bytes, up to and with its first FIN.
func untilFinished(to io.Writer, client io.Reader) {
	b := make([]byte, 4096)
	for {
		n, err := client.Read(b)
		if _, failed := to.Write(b[:n]); failed != nil || err != nil || bytes.Contains(b[:n], []byte("FIN ")) {
			return
		}
	}
}

// publishLines publishes each line as a message.
func publishLines(t *testing.T, broker, lines string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "lines")
	require.NoError(t, os.WriteFile(name, []byte(lines), 0o600))
	_, err := run(t, wait.Limit, "pub", "--topic=orders", "--nsqd-tcp-address="+broker, name)
	require.NoError(t, err)
}

// A tail of a restarted broker continues soon after the restart, and misses no message.
func TestTailComesBackAfterARestart(t *testing.T) {
	broker := clitest.TCPBroker(t)
	publishLines(t, broker, "one")
	address, finished := restarting(t, broker, 100)
	type end struct {
		out string
		err error
	}
	ended := make(chan end, 1)
	go func() {
		out, err := run(t, wait.Limit, "tail", "--topic=orders", "--channel=ch", "-n=2", "--nsqd-tcp-address="+address)
		ended <- end{out, err}
	}()
	<-finished
	publishLines(t, broker, "two")
	e := <-ended
	require.NoError(t, e.err)
	require.Contains(t, e.out, "one\n")
	require.Contains(t, e.out, "two\n")
}

// TestTailGoesOnAtAnotherBroker: tail reads from one broker, so that the messages of a partition keep their order, and from the
// next one when that is gone.
func TestTailGoesOnAtAnotherBroker(t *testing.T) {
	broker := clitest.TCPBroker(t)
	publishLines(t, broker, "one")
	address, finished := restarting(t, broker, 1)
	go func() {
		<-finished
		publishLines(t, broker, "two")
	}()
	out, err := run(t, wait.Limit, "tail", "--topic=orders", "--channel=ch", "-n=2", "--nsqd-tcp-address="+address+","+broker)
	require.NoError(t, err)
	require.Regexp(t, `^one\n(ERR.*\n)*(one|two)\n`, out, "the first one comes again if its finish was lost")
}

// TestTailTakesWhatItPrints: messages beyond the limit stay with the channel, and no attempt of theirs is used up.
func TestTailTakesWhatItPrints(t *testing.T) {
	broker := clitest.TCPBroker(t)
	publishLines(t, broker, "1\n2\n3\n4\n5\n6\n7\n8\n9\n")
	got := ""
	for _, count := range []string{"1", "1", "3", "1", "3"} {
		out, err := run(t, wait.Limit, "tail", "--topic=orders", "--channel=ch", "-n="+count, "-o=json", "--nsqd-tcp-address="+broker)
		require.NoError(t, err)
		for _, line := range strings.Fields(out) {
			var m struct {
				Body     string
				Attempts int
			}
			require.NoError(t, json.Unmarshal([]byte(line), &m))
			got += fmt.Sprintf("%s (%d) ", m.Body, m.Attempts)
		}
	}
	require.Equal(t, "1 (1) 2 (1) 3 (1) 4 (1) 5 (1) 6 (1) 7 (1) 8 (1) 9 (1) ", got)
}
