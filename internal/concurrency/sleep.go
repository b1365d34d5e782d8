package concurrency

import (
	"context"
	"time"
)

// Sleep sleeps for d. It returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool { return SleepUntil(ctx, nil, d) }

// SleepUntil sleeps for d, or until changed is closed or sends a value. It returns false if ctx ends first.
func SleepUntil(ctx context.Context, changed <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-changed:
	case <-ctx.Done():
		return false
	}
	return true
}
