package concurrency

// Sleep and SleepUntil are the sleeps of loops that retry: a sleep ends early when its context
// ends. It does not choose the duration, and it does not retry.
//
// Invariants
//
//  1. A sleep ends at its duration or at the end of its context, whichever comes first. No
//     timer and no goroutine outlives it.

import (
	"context"
	"time"
)

// Sleep sleeps for d. It returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// SleepUntil sleeps for d, or less if changed is closed or sends a value. It returns false if ctx
// ends first. With a nil channel it is For.
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
