package e2etest

import (
	"sync"
	"testing"
	"testing/synctest"
)

// TestFeedEndsForAll: the last body ends the feed for all producers that wait; a producer left behind would end the bubble with a deadlock.
func TestFeedEndsForAll(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		f := NewFeed([]string{"a", "b"}, 0)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				for ok := true; ok; {
					_, _, ok = f.take()
				}
			})
		}
		synctest.Wait()
		f.Allow(2)
		all.Wait()
	})
}
