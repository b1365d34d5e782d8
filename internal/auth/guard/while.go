package guard

import (
	"context"
	"errors"
	"time"
)

// recheckEvery separates the checks of While where no change of the users calls for one: an answer of an auth service runs out.
const recheckEvery = 5 * time.Second

// IsLoss reports whether an error of Allow says that the client does not have the right. Other errors say that it is not known.
func IsLoss(err error) bool {
	return errors.Is(err, ErrLogin) || errors.Is(err, ErrDenied) || denial(err) || errors.Is(err, ErrUnanswered)
}

// While returns a context that ends when the client loses the right: at once when the users change or its browser signs out, and
// within recheckEvery of the end of an auth service's answer. Its cause is the error of Allow. An auth service that gives no
// usable answer ends it only when its last answer does not hold any more (AnswerHolds). No session (nil) has no right to lose.
// The caller calls end.
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
