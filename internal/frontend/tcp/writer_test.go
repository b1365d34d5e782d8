package tcp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/testkit/tcp"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// unstarted returns a connection whose goroutines are not running, and its client.
func unstarted(t *testing.T) (*conn, net.Conn) {
	t.Helper()
	client, raw := tcp.Pair(t)
	require.NoError(t, client.SetReadDeadline(time.Now().Add(wait.Limit)))
	return newConn(New(DefaultOptions(), Backend{}), raw), client
}

func owe(t *testing.T, c *conn, count int) *slot {
	t.Helper()
	s, err := c.fifo.reserve(t.Context(), answer{put: "PUB", count: count}, 10, &reservation{})
	require.NoError(t, err)
	return s
}

func requireOK(t *testing.T, r io.Reader) {
	t.Helper()
	b := make([]byte, len(frameOK))
	_, err := io.ReadFull(r, b)
	require.NoError(t, err)
	require.Equal(t, "\x00\x00\x00\x06\x00\x00\x00\x00OK", string(b))
}

// The goroutine that answers an uncontended put writes its OK; the writer is not woken.
func TestUncontendedOKIsWrittenInline(t *testing.T) {
	c, client := unstarted(t)
	for range 3 {
		require.NoError(t, c.raw.SetWriteDeadline(time.Unix(1, 0)), "of an earlier write")
		owe(t, c, 1).Answer(api.PutResult{})
		requireOK(t, client)
	}
	require.Empty(t, c.fifo.wake)
	require.NoError(t, c.fifo.drained(t.Context()))
	require.Zero(t, c.h.owed.N())
}

// The writer writes an answer that is not a plain OK, or that shares a write with others.
func TestOtherAnswersAreLeftToTheWriter(t *testing.T) {
	for what, answered := range map[string]func(c *conn){
		"another put is under way": func(c *conn) {
			s, _ := owe(t, c, 1), owe(t, c, 1)
			s.Answer(api.PutResult{})
		},
		"another client's put is under way": func(c *conn) {
			c.h.owed.Enter()
			owe(t, c, 1).Answer(api.PutResult{})
		},
		"an error":           func(c *conn) { owe(t, c, 1).Answer(api.PutResult{Err: errors.New("no")}) },
		"several puts":       func(c *conn) { owe(t, c, 2).Answer(api.PutResult{}) },
		"an answer after it": func(c *conn) { s := owe(t, c, 1); c.fifo.push(answer{}); <-c.fifo.wake; s.Answer(api.PutResult{}) },
		"messages held back": func(c *conn) {
			require.NoError(t, c.out.writeLocked([]byte("held"), nil))
			owe(t, c, 1).Answer(api.PutResult{})
		},
		"another goroutine writes": func(c *conn) {
			c.out.mu.Lock()
			defer c.out.mu.Unlock()
			owe(t, c, 1).Answer(api.PutResult{})
		},
		"compression": func(c *conn) {
			c.out.switchLocked(c.raw, bufio.NewWriter(c.raw))
			owe(t, c, 1).Answer(api.PutResult{})
		},
	} {
		c, _ := unstarted(t)
		answered(c)
		require.NotEmpty(t, c.fifo.wake, what)
		require.False(t, c.fifo.mu.answers == 0, what)
	}
}

// A client that does not read blocks no other put. It receives each answer in full, once, when it reads.
func TestInlineOKNeverBlocks(t *testing.T) {
	c, client := unstarted(t)
	require.NoError(t, c.raw.(*net.TCPConn).SetWriteBuffer(4096))
	answers := 0
	for len(c.fifo.wake) == 0 {
		owe(t, c, 1).Answer(api.PutResult{})
		answers++
	}
	require.True(t, c.out.unsent)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writer sync.WaitGroup
	writer.Go(func() { c.write(ctx) })
	defer writer.Wait()
	defer cancel()
	for range answers {
		requireOK(t, client)
	}
	owe(t, c, 1).Answer(api.PutResult{})
	requireOK(t, client)
}

// large is a subscription with a message that no buffer has room for.
type large struct{ api.Subscription }

func (large) InFlight() int          { return 0 }
func (large) Written([]api.Delivery) { panic("the message was not written") }
func (large) Pull(_ int, dst []api.Delivery) []api.Delivery {
	return append(dst, api.Delivery{Message: queue.Message{Body: make([]byte, 1<<20)}})
}

// TestFailedDelivery: a message that cannot be written ends the connection, and is no attempt.
func TestFailedDelivery(t *testing.T) {
	c, _ := unstarted(t)
	w := &writer{c: c, sub: large{}}
	c.ready.Store(1)
	require.NoError(t, c.raw.Close())
	_, err := w.burst()
	require.ErrorIs(t, err, net.ErrClosed)
}

// TestSettingsComeFirst: everything written after the answer to IDENTIFY follows its settings, also if messages are
// there as soon.
func TestSettingsComeFirst(t *testing.T) {
	for range 50 { // a select takes either
		c, _ := unstarted(t)
		w := &writer{c: c, flush: time.NewTimer(time.Hour)}
		heartbeat := time.NewTicker(time.Hour)
		c.settings <- tuning{heartbeat: time.Hour, outputTimeout: time.Second}
		c.fifo.wake <- struct{}{}
		require.NoError(t, w.wait(t.Context(), heartbeat))
		require.Equal(t, time.Second, w.outputTimeout)
		require.Len(t, c.fifo.wake, 1)
		heartbeat.Stop()
	}
}
