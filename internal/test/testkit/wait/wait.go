// Package wait is how a test waits for something that another goroutine or process does.
// The only time it has is Limit, after which it reports a hang: no test judges how fast the
// machine is. A duration that the product promises is judged in a bubble of testing/synctest,
// or by a test named TestPromise… (`make promises`).
//
// # Invariants
//
//  1. A wait ends as soon as its condition holds.
//  2. A wait that fails says what it waited for.
package wait

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Limit is after how long a test that makes no progress counts as hung. It is far above the
// longest wait of any test, also on a machine that does ten other things.
const Limit = 2 * time.Minute

// pollEvery is the pause between two checks of a condition.
const pollEvery = time.Millisecond

// Until waits until a condition holds. The arguments behind it are a format and its values
// that name the condition. Only the test's own goroutine may call it.
func Until(t testing.TB, ok func() bool, what string, args ...any) {
	t.Helper()
	if !Holds(ok) {
		t.Fatalf("hangs: after %s still not true: %s", Limit, fmt.Sprintf(what, args...))
	}
}

// Holds is Until for any goroutine: it returns false if the condition did not hold within Limit.
func Holds(ok func() bool) bool {
	again := time.NewTicker(pollEvery)
	defer again.Stop()
	for end := time.Now().Add(Limit); !ok(); <-again.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// For returns the next value of a channel, or its zero value once the channel is closed. The
// arguments behind the channel are a format and its values that name what the channel brings.
func For[T any](t testing.TB, c <-chan T, what string, args ...any) T {
	t.Helper()
	hung := time.NewTimer(Limit)
	defer hung.Stop()
	select {
	case v := <-c:
		return v
	case <-hung.C:
		t.Fatalf("hangs: nothing after %s: %s", Limit, fmt.Sprintf(what, args...))
		panic("unreachable")
	}
}

// Context returns a context that ends with the test, or after Limit.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Limit)
	t.Cleanup(cancel)
	return ctx
}

// Expiring returns a context that the test expects to run out: what is called with it cannot
// succeed, however long it gets.
func Expiring(t testing.TB, after time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), after)
	t.Cleanup(cancel)
	return ctx
}

// Main runs the tests of a package and exits. If they pass, it waits for the goroutines that have
// not ended yet, other than those of the options; TestMain is its only caller.
func Main(m *testing.M, ignored ...goleak.Option) {
	code := m.Run()
	if code == 0 && !Holds(func() bool { return goleak.Find(ignored...) == nil }) {
		fmt.Fprintln(os.Stderr, goleak.Find(ignored...))
		code = 1
	}
	os.Exit(code)
}
