package store

import (
	"sync/atomic"

	"github.com/lockstepmq/lockstep/internal/concurrency"
)

// atOnce is the number of partitions that are opened or synced at once. Each takes several calls that
// wait for the disk, and the file system combines concurrent syncs.
const atOnce = 32

// forEach runs f for all numbers below n, up to atOnce at a time, until an error, which it returns.
func forEach(n int, f func(i int) error) (first error) {
	var failed atomic.Bool
	concurrency.Each(n, atOnce, func(i int) {
		if failed.Load() {
			return
		}
		if err := f(i); err != nil && failed.CompareAndSwap(false, true) {
			first = err
		}
	})
	return first
}

// forEachPaced runs f for all numbers below n, one at a time while it keeps up. Whenever behind (called with the number
// done) is true, it doubles the number of concurrent calls, otherwise it halves it.
func forEachPaced(n int, behind func(done int) bool, f func(i int) error) error {
	width := 1
	for done := 0; done < n; {
		some := min(width, n-done)
		if err := forEach(some, func(i int) error { return f(done + i) }); err != nil {
			return err
		}
		if done += some; behind(done) {
			width = min(2*width, atOnce)
		} else {
			width = max(width/2, 1)
		}
	}
	return nil
}
