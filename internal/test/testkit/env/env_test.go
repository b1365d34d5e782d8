package env

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNumber(t *testing.T) {
	require.Equal(t, 7, Number(t, "LOCKSTEP_TESTENV", 7))
	t.Setenv("LOCKSTEP_TESTENV", "12")
	require.Equal(t, uint64(12), Number(t, "LOCKSTEP_TESTENV", uint64(7)))
	for _, bad := range []string{"x", "-1", "1.5", "99999999999999999999"} {
		t.Setenv("LOCKSTEP_TESTENV", bad)
		var f failing
		done := make(chan struct{})
		go func() {
			defer close(done)
			Number(&f, "LOCKSTEP_TESTENV", 7)
		}()
		<-done
		require.True(t, f.failed, bad)
	}
}

func TestWithin(t *testing.T) {
	t.Setenv("LOCKSTEP_SLACK", "")
	require.Equal(t, time.Second, Within(t, time.Second))
	t.Setenv("LOCKSTEP_SLACK", "2.5")
	require.Equal(t, 5*time.Second, Within(t, 2*time.Second))
}

// failing records that a test has failed.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(string, ...any) {
	f.failed = true
	runtime.Goexit()
}
