package guard

import (
	"context"
	"errors"
	"time"
)

// recheckEvery is the time between the checks of While if the users do not change: an auth service's answer expires.
const recheckEvery = 5 * time.Second

// IsLoss reports whether an error of Allow says that the client does not have the right. Other errors say that this is unknown.
func IsLoss(err error) bool {
	return errors.Is(err, ErrLogin) || errors.Is(err, ErrDenied) || denial(err) || errors.Is(err, ErrUnanswered)
}

// While returns a context that ends when the client loses the right: at once when the users change or its browser signs out, and
// within recheckEvery of the expiry of an auth service's answer. Its cause is the error of Allow. A nil session has no right to
// lose. The caller calls end.
func (s *Session) While(ctx context.Context, n Need) (_ context.Context, end func()) {
	if s == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		tick := time.NewTicker(recheckEvery)
		defer tick.Stop()
		dropped := s.signIn.dropped()
		for {
			changed := s.guard.Changed()
			if err := s.Allow(ctx, n); IsLoss(err) {
				cancel(err)
				return
			}
			select {
			case <-changed:
			case <-dropped:
				dropped = nil // once: without users it is no loss
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Lost replaces the error of an operation that ended because its client lost the right: ctx is that of While.
func Lost(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && IsLoss(cause) {
		return cause
	}
	return err
}
