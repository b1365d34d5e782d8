package publisher

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/nsqio/go-nsq"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/frontend/tcp"
	"github.com/lockstepmq/lockstep/internal/test/testkit/brokertest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// TestSend publishes messages of several topics and headers: each put has those of one topic and one header, and
// every message is reported once, after its OK.
func TestSend(t *testing.T) {
	address, cluster := brokertest.Start(t, tcp.DefaultOptions())
	for _, topic := range []string{"a", "b"} {
		require.NoError(t, cluster.Do(t.Context(), api.CreateTopic{Topic: topic}))
		require.NoError(t, cluster.Do(t.Context(), api.CreateChannel{Topic: topic, Channel: "ch"}))
	}
	messages, stored := make(chan Message, 100), 0
	for i := range 12 {
		m := Message{Topic: "a", Body: fmt.Appendf(nil, "%d", i), Stored: func() { stored++ }}
		if i >= 4 {
			m.Header = []byte(`{"##only_channel":"ch"}`)
		}
		if i >= 8 {
			m.Topic = "b"
		}
		messages <- m
	}
	close(messages)
	o := defaults(address)
	o.Batch, o.Linger = 3, wait.Limit // a batch ends with its topic or header
	totals, err := Send(t.Context(), messages, o)
	require.NoError(t, err)
	require.Equal(t, Totals{Messages: 12}, totals)
	require.Equal(t, 12, stored)
	require.Equal(t, []int{3, 1, 3, 1, 3, 1}, cluster.Puts())
	require.Equal(t, "0 1 2 3 4 5 6 7 ", consume(t, address, "a", 8))
	require.Equal(t, "8 9 10 11 ", consume(t, address, "b", 4))
}

// consume returns the bodies of a channel.
func consume(t *testing.T, address, topic string, count int) (bodies string) {
	t.Helper()
	c, err := nsq.NewConsumer(topic, "ch", nsq.NewConfig())
	require.NoError(t, err)
	c.SetLoggerLevel(nsq.LogLevelError)
	got := make(chan string, count)
	c.AddHandler(nsq.HandlerFunc(func(m *nsq.Message) error { got <- string(m.Body); return nil }))
	require.NoError(t, c.ConnectToNSQD(address))
	for range count {
		bodies += wait.For(t, got, "a message") + " "
	}
	c.Stop()
	<-c.StopChan
	return bodies
}

// TestStoredMeansOK: a message that a broker refuses for now is not reported before the retry that is answered OK.
func TestStoredMeansOK(t *testing.T) {
	address, cluster := brokertest.Start(t, tcp.DefaultOptions())
	cluster.FailPuts(outcome.ErrNotEnough)
	messages, stored, ended := make(chan Message, 1), make(chan struct{}, 2), make(chan error, 1)
	messages <- Message{Topic: "a", Body: []byte("one"), Stored: func() { stored <- struct{}{} }}
	o := defaults(address)
	o.Linger, o.Retry = 0, Forever
	reported := make(chan string, 100)
	o.Report = func(line string) { reported <- line }
	go func() { // ends with the input
		_, err := Send(t.Context(), messages, o)
		ended <- err
	}()
	require.Contains(t, <-reported, "retrying")
	require.Empty(t, stored)
	cluster.FailPuts(nil)
	<-stored
	close(messages)
	require.NoError(t, <-ended)
	require.Empty(t, stored)
}

// TestABrokerThatStartsRefusesNothingForGood: it does not know the users yet, or has no room. The same secret is tried again. A
// connection from before it knew them has sent none.
func TestABrokerThatStartsRefusesNothingForGood(t *testing.T) {
	frame := func(kind byte, text string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(4+len(text))), append([]byte{0, 0, 0, kind}, text...)...)
	}
	for command, refusal := range map[string]string{
		"IDENTIFY": "E_AUTH_FAILED AUTH failed not ready: opening the store",
		"  V2":     "E_TOO_MANY_CONNECTIONS the broker has 10 connections, as many as it may",
		"PUB":      "E_AUTH_FIRST AUTH required before PUB",
	} {
		starting, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		var serving sync.WaitGroup
		serving.Go(func() {
			for {
				conn, err := starting.Accept()
				if err != nil {
					return
				}
				heard, b := "", make([]byte, 4096)
				for n := 0; err == nil && !strings.Contains(heard, command); {
					n, err = conn.Read(b)
					heard += string(b[:n])
					if command == "PUB" && strings.HasPrefix(heard, "  V2IDENTIFY") {
						_, _ = conn.Write(frame(0, "OK"))
						heard = ""
					}
				}
				_, _ = conn.Write(frame(1, refusal))
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}
		})
		address, cluster := brokertest.Start(t, tcp.DefaultOptions())
		messages := make(chan Message, 1)
		messages <- Message{Topic: "a", Body: []byte("one")}
		close(messages)
		o := defaults(starting.Addr().String(), address)
		o.Dialer.Secret = "root.secret"
		totals, err := Send(t.Context(), messages, o)
		require.NoError(t, err)
		require.EqualValues(t, 1, totals.Messages)
		require.Equal(t, []int{1}, cluster.Puts())
		require.NoError(t, starting.Close())
		serving.Wait()
	}
}
