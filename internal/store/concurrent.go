package store

import (
	"sync"
	"sync/atomic"
)

// concurrency is how many partitions are opened or synced at once: each takes
// several calls that wait for the disk, and the file system makes durable
// together what is asked for together.
const concurrency = 32

// forEach runs f for all numbers below n, some at a time, and gives an error if
// there is one; no more are begun after it.
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

// calmly runs f for all numbers below n, one after the other while it keeps up:
// each time it is behind, twice as many at once as before, and half as many when
// it is not. behind is asked with how many are done.
func calmly(n int, behind func(done int) bool, f func(i int) error) error {
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
