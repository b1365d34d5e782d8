package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/nsqclient"
)

// fake is a broker that answers OK to every command and delivers the published messages.
type fake struct {
	stall    time.Duration // before the answer to the first put
	forget   bool          // deliver nothing
	messages chan []byte
	ended    chan struct{} // the test has its figures
}

func (f *fake) serve(raw net.Conn) {
	c := nsqclient.New(raw)
	defer c.Close()
	if _, err := c.R.Discard(4); err != nil {
		return
	}
	for {
		line, err := c.R.ReadString('\n')
		if err != nil {
			return
		}
		switch verb, _, _ := strings.Cut(strings.TrimSpace(line), " "); verb {
		case "IDENTIFY":
			_ = chunk(c)
		case "PUB":
			if m := chunk(c); !f.forget {
				select {
				case f.messages <- m:
				case <-f.ended:
				}
			}
			if f.stall > 0 {
				<-time.After(f.stall)
				f.stall = 0
			}
		case "RDY":
			go f.deliver(raw)
			continue
		case "FIN", "NOP":
			continue
		}
		answer(raw, nsqclient.FrameResponse, []byte("OK"))
	}
}

func (f *fake) deliver(raw net.Conn) {
	for {
		select {
		case m := <-f.messages:
			answer(raw, nsqclient.FrameMessage, append(make([]byte, messageHeader), m...))
		case <-f.ended:
			return
		}
	}
}

func chunk(c *nsqclient.Conn) []byte {
	var n [4]byte
	_, _ = io.ReadFull(c.R, n[:])
	b := make([]byte, binary.BigEndian.Uint32(n[:]))
	_, _ = io.ReadFull(c.R, b)
	return b
}

func answer(raw net.Conn, kind uint32, data []byte) {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(data)))
	b = binary.BigEndian.AppendUint32(b, kind)
	_, _ = raw.Write(append(b, data...))
}

// buffered is a connection whose writes do not wait for the reader, as on a socket.
type buffered struct {
	net.Conn
	writes chan []byte
}

func newBuffered(c net.Conn, ended <-chan struct{}) buffered {
	b := buffered{c, make(chan []byte, 10_000)}
	go func() {
		for {
			select {
			case w := <-b.writes:
				_, _ = c.Write(w)
			case <-ended:
				return
			}
		}
	}()
	return b
}

func (b buffered) Write(p []byte) (int, error) {
	b.writes <- bytes.Clone(p)
	return len(p), nil
}

// measured runs a workload on connections in memory. Only a test in a bubble calls it.
func measured(t *testing.T, f *fake, w Workload, b Bounds) Run {
	t.Helper()
	f.messages, f.ended = make(chan []byte, 10_000), make(chan struct{})
	b.Timeout = time.Hour
	open := func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go f.serve(newBuffered(there, f.ended)) // ends with the connection
		return here, nil
	}
	run, err := Measure(context.Background(), w, &Config{Addresses: []string{"fake"}, Topic: "t", Bounds: b, open: open})
	require.NoError(t, err)
	close(f.ended)
	return run
}

func TestPublishCountsAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := measured(t, &fake{}, Workload{Connections: 4, Outstanding: 5, Size: 10, Messages: 1000}, Bounds{Scale: 1})
		require.Equal(t, 1000, run.Messages)
		require.Positive(t, run.P50)
	})
}

func TestMixedCountsWhatWasFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := measured(t, &fake{}, Workload{Kind: Mixed, Connections: 2, Consumers: 2, Size: 10, Messages: 500}, Bounds{Scale: 1})
		require.Equal(t, 500, run.Messages)
	})
}

// TestDrainGoesOnAfterHalfAFrame: a frame that arrives in two parts, far apart, is read whole.
func TestDrainGoesOnAfterHalfAFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		bounds := Bounds{Timeout: time.Hour}
		r := &nsq{Repeat: NewRepeat(bounds, nil, nil), cfg: &Config{Bounds: bounds}}
		r.n = 2
		go func() { // ends with the second message
			frame := make([]byte, 8+messageHeader+10)
			binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
			binary.BigEndian.PutUint32(frame[4:], nsqclient.FrameMessage)
			_, _ = there.Write(frame[:20])
			<-time.After(500 * time.Millisecond) // longer than the look-up
			_, _ = there.Write(frame[20:])
			go func() { _, _ = io.Copy(io.Discard, there) }()
			_, _ = there.Write(frame)
		}()
		defer there.Close()
		require.NoError(t, r.drain(nsqclient.New(here), func([]byte) {}))
		require.True(t, r.Finished())
	})
}

// TestFlowHasNoCoordinatedOmission: one stall of 200 ms delays all puts that were due
// during it, a fifth of all, and each of them counts.
func TestFlowHasNoCoordinatedOmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := measured(t, &fake{stall: 200 * time.Millisecond},
			Workload{Kind: Flow, Connections: 1, Consumers: 1, Size: 10, Rate: 500, Messages: 500}, Bounds{Scale: 1})
		require.Equal(t, 500, run.Messages)
		require.Greater(t, run.P99, 100*time.Millisecond)
		require.Less(t, run.P50, 100*time.Millisecond)
	})
}

// TestLimitEndsARepeat: the figures are those of the messages until then.
func TestLimitEndsARepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := Workload{Connections: 1, Outstanding: 5, Size: 10, Messages: 1 << 40}
		run := measured(t, &fake{forget: true, stall: 200 * time.Millisecond}, w, Bounds{Scale: 1, Limit: 100 * time.Millisecond})
		require.Positive(t, run.Messages)
		require.Less(t, run.Messages, w.Messages)
		require.GreaterOrEqual(t, run.Took, 100*time.Millisecond)

		w = Workload{Kind: Flow, Connections: 1, Consumers: 1, Size: 10, Rate: 500, Messages: 1 << 40}
		run = measured(t, &fake{}, w, Bounds{Scale: 1, Limit: 100 * time.Millisecond})
		require.LessOrEqual(t, run.Messages, 50)
	})
}

// TestATaskThatEndsLateAddsNothing: consumers check only from time to time whether another one
// has finished the last message.
func TestATaskThatEndsLateAddsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late = 300 * time.Millisecond
		r := NewRepeat(Bounds{}, nil, nil)
		run, err := r.Run(context.Background(), 10, []Task{
			func(_ context.Context, ready chan<- struct{}, begin <-chan struct{}) error {
				ready <- struct{}{}
				<-begin
				<-time.After(time.Millisecond)
				r.Add(10)
				<-time.After(late)
				return nil
			},
		})
		require.NoError(t, err)
		require.Equal(t, time.Millisecond, run.Took)
	})
}
