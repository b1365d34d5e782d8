package client

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake starts a broker that is stopped at the end of the test.
func fake(t *testing.T, configure ...func(*fakeBroker)) *fakeBroker {
	f := startFake(configure...)
	t.Cleanup(f.stop)
	return f
}

// open opens a client that is closed at the end of the test, before the brokers.
func open(t *testing.T, o Options, brokers ...*fakeBroker) *Client {
	t.Helper()
	var all []string
	for _, f := range brokers {
		all = append(all, f.addr())
	}
	c, err := Open(t.Context(), all, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 10*time.Second, 2*time.Millisecond, what)
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
