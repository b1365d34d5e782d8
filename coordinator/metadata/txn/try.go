package txn

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/concurrency"
)

// Try is one short attempt (Timeout) at a transaction on keys that were read before. If it returns not ok, the keys
// have changed, or no answer came (rev is 0). The caller then reads the keys again.
func Try(ctx context.Context, s metadata.Store, cmp []metadata.Compare, puts []metadata.Put) (ok bool, rev int64, err error) {
	short, cancel := context.WithTimeout(ctx, LargeTimeout(len(puts)))
	defer cancel()
	ok, rev, err = s.Txn(short, cmp, puts)
	if errors.Is(err, metadata.ErrUnknown) && concurrency.SleepUntil(ctx, nil, Retry) {
		return false, 0, nil
	}
	return ok, rev, err
}

// Write runs a transaction, and returns ErrCompare if a compare fails.
func Write(ctx context.Context, s metadata.Store, cmp []metadata.Compare, puts ...metadata.Put) (rev int64, err error) {
	ok, rev, err := s.Txn(ctx, cmp, puts)
	if err == nil && !ok {
		err = ErrCompare
	}
	return rev, err
}

// Apply is Try, but returns ErrCompare if the keys have changed or no answer came.
func Apply(ctx context.Context, s metadata.Store, cmp []metadata.Compare, puts []metadata.Put) (rev int64, err error) {
	ok, rev, err := Try(ctx, s, cmp, puts)
	if err == nil && !ok {
		err = ErrCompare
	}
	return rev, err
}

// LargeTimeout is the time limit of a transaction with the given number of puts.
func LargeTimeout(puts int) time.Duration { return 2*Timeout + time.Duration(puts)*putTimeout }

// readPause is the pause before ReadUntil repeats the read.
const readPause = time.Second

// ReadUntil repeats the read of a key until the store answers or ctx ends. The error is metadata.ErrNotFound or ctx's.
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

// Absent reports whether a linearizable read proves that a key does not exist. An error proves nothing.
func Absent(ctx context.Context, s metadata.Store, key string) bool {
	_, err := s.Get(ctx, key)
	return errors.Is(err, metadata.ErrNotFound)
}

// DeleteAll removes all keys with a prefix, in transactions of the largest size.
func DeleteAll(ctx context.Context, s metadata.Store, prefix string) error {
	entries, _, err := s.List(ctx, prefix)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(entries, metadata.MaxTxn) {
		var puts []metadata.Put
		for _, e := range some {
			puts = append(puts, metadata.Put{Key: e.Key, Delete: true})
		}
		if _, _, err := s.Txn(ctx, nil, puts); err != nil {
			return err
		}
	}
	return nil
}
