package coordinator

import "sync"

// parallel calls f for 0 to n−1, at most so many at once, and returns when all
// have ended.
func parallel(n, atOnce int, f func(i int)) {
	slots := make(chan struct{}, atOnce)
	var calls sync.WaitGroup
	defer calls.Wait()
	for i := range n {
		slots <- struct{}{}
		calls.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
}
