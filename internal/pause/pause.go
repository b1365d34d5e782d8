// Package pause waits between two tries. It knows nothing of what is tried, nor
// how long between tries is right.
//
// 1. A pause is over when its time is, or when its context ends, whichever comes
// first; nothing is left behind.
package pause

import (
	"context"
	"time"
)

// For waits; false means that ctx ended first.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
