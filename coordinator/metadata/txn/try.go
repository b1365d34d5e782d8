package txn

import (
	"context"
	"errors"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/concurrency"
)

// Try is one attempt at a transaction on keys as they were read. Its time is short (see
// Timeout). Not ok: the keys have moved, or no answer came, then rev is 0; the caller
// reads the keys again.
func Try(ctx context.Context, s metadata.Store, cmp []metadata.Compare, puts []metadata.Put) (ok bool, rev int64, err error) {
	short, cancel := context.WithTimeout(ctx, LargeTimeout(len(puts)))
	defer cancel()
	ok, rev, err = s.Txn(short, cmp, puts)
	if errors.Is(err, metadata.ErrUnknown) && concurrency.SleepUntil(ctx, nil, Retry) {
		return false, 0, nil
	}
	return ok, rev, err
}

// Apply is Try for a caller that gives up or starts over: ErrCompare if the keys have moved, or no
// answer came.
func Apply(ctx context.Context, s metadata.Store, cmp []metadata.Compare, puts []metadata.Put) (rev int64, err error) {
	ok, rev, err := Try(ctx, s, cmp, puts)
	if err == nil && !ok {
		err = ErrCompare
	}
	return rev, err
}

// LargeTimeout is the time of a transaction with so many puts.
func LargeTimeout(puts int) time.Duration { return 2*Timeout + time.Duration(puts)*PutTimeout }

// readPause is the pause before ReadUntil asks again.
const readPause = time.Second

// ReadUntil reads a key until the store answers: metadata.ErrNotFound, or that ctx ended.
func ReadUntil(ctx context.Context, s metadata.Store, key string) (metadata.Entry, error) {
	for {
		get, cancel := context.WithTimeout(ctx, RequestTimeout)
		e, err := s.Get(get, key)
		cancel()
		if err == nil || errors.Is(err, metadata.ErrNotFound) || !concurrency.SleepUntil(ctx, nil, readPause) {
			return e, err
		}
	}
}

// Absent reads a key linearizably, and reports whether the store said that it is not
// there. An error is not absence.
func Absent(ctx context.Context, s metadata.Store, key string) bool {
	_, err := s.Get(ctx, key)
	return errors.Is(err, metadata.ErrNotFound)
}

// DeleteAll removes all keys that begin with a prefix, as many in one transaction as the
// store takes.
func DeleteAll(ctx context.Context, s metadata.Store, prefix string) error {
	entries, _, err := s.List(ctx, prefix)
	if err != nil {
		return err
	}
	for len(entries) > 0 {
		n := min(len(entries), metadata.MaxTxn)
		var puts []metadata.Put
		for _, e := range entries[:n] {
			puts = append(puts, metadata.Put{Key: e.Key, Delete: true})
		}
		if _, _, err := s.Txn(ctx, nil, puts); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}
