package wait

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		Until(t, func() bool { return time.Since(began) >= 50*time.Millisecond }, "50 ms have passed")
		require.Equal(t, 50*time.Millisecond, time.Since(began), "not a moment longer")
		c := make(chan int, 1)
		c <- 7
		require.Equal(t, 7, For(t, c, "a number"))
	})
}

// TestHangs: a condition that never holds fails the test after Limit, and says what it was.
func TestHangs(t *testing.T) {
	for name, hang := range map[string]func(testing.TB){
		"condition": func(t testing.TB) { Until(t, func() bool { return false }, "the moon is %s", "green") },
		"channel":   func(t testing.TB) { For(t, make(chan int), "the moon is %s", "green") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, f := time.Now(), &failing{}
				done := make(chan struct{})
				go func() {
					defer close(done)
					hang(f)
				}()
				<-done
				require.Equal(t, Limit, time.Since(began).Truncate(time.Second))
				require.Contains(t, f.said, "hangs: ")
				require.Contains(t, f.args[1], "the moon is green")
			})
		})
	}
}

func TestContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := Context(t)
		<-Expiring(t, time.Second).Done()
		require.NoError(t, ctx.Err())
		<-ctx.Done()
		require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
	})
}

// failing records how a test failed.
type failing struct {
	testing.TB
	said string
	args []any
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.said, f.args = format, args
	runtime.Goexit()
}
