package store

import (
	"sync"
	"sync/atomic"
)

// concurrency is the number of partitions that are opened or synced at once. Each takes several
// calls that wait for the disk, and the file system combines concurrent syncs.
const concurrency = 32

// forEach runs f for all numbers below n, up to concurrency at a time. It returns one of the
// errors, and starts no further call after an error.
func forEach(n int, f func(i int) error) error {
	var next atomic.Int64
	var workers sync.WaitGroup
	errs := make(chan error, concurrency)
	for range min(n, concurrency) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if err := f(int(i)); err != nil {
					next.Store(int64(n))
					errs <- err
					return
				}
			}
		})
	}
	workers.Wait()
	close(errs)
	return <-errs
}

// forEachPaced runs f for all numbers below n, one at a time while it keeps up. Whenever behind
// (called with the number done) is true, it doubles the number of concurrent calls, otherwise it
// halves it.
func forEachPaced(n int, behind func(done int) bool, f func(i int) error) error {
	width := 1
	for done := 0; done < n; {
		some := min(width, n-done)
		if err := forEach(some, func(i int) error { return f(done + i) }); err != nil {
			return err
		}
		if done += some; behind(done) {
			width = min(2*width, concurrency)
		} else {
			width = max(width/2, 1)
		}
	}
	return nil
}
