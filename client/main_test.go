package client

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// limit is after how long a test that makes no progress counts as hung.
const limit = 2 * time.Minute

// fake starts a broker that is stopped at the end of the test.
func fake(t *testing.T, configure ...func(*fakeBroker)) *fakeBroker {
	f := startFake(configure...)
	t.Cleanup(f.stop)
	return f
}

// open opens a client of brokers in memory. It is closed at the end of the test, before the brokers.
func open(t *testing.T, o Options, brokers ...*fakeBroker) *Client {
	t.Helper()
	o.Dialer = dialMemory
	var all []string
	for _, f := range brokers {
		all = append(all, f.addr())
	}
	c, err := Open(t.Context(), all, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(limit); !condition(); <-again.C {
		require.True(t, time.Now().Before(end), "hangs: %s", what)
	}
}

// number is the scripted answer to one put; the others are stored.
func number(n int, answer string) func(*fakeBroker) {
	return func(f *fakeBroker) {
		f.script = func(i int, _ fakePut) string {
			if i == n {
				return answer
			}
			return ""
		}
	}
}

// always is the scripted answer to all puts.
func always(answer string) func(*fakeBroker) {
	return func(f *fakeBroker) { f.script = func(int, fakePut) string { return answer } }
}
