package metadata_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// follower folds a watch into the state it describes.
type follower struct {
	t       *testing.T
	changes <-chan metadata.Change
	state   map[string]string
	last    int64
	resets  int
}

func follow(t *testing.T, s metadata.Store, prefix string) *follower {
	ctx, cancel := context.WithCancel(context.Background())
	f := &follower{t: t, changes: s.Watch(ctx, prefix), state: map[string]string{}}
	t.Cleanup(func() {
		cancel()
		for range f.changes {
		}
	})
	return f
}

// next takes one change and checks the order.
func (f *follower) next() metadata.Change {
	f.t.Helper()
	c := wait.For(f.t, f.changes, "a change")
	require.NotZero(f.t, c, "the watch ended")
	if f.resets == 0 {
		require.True(f.t, c.Reset, "a watch begins with the whole state")
	}
	if c.Reset {
		f.resets++
		clear(f.state)
		require.GreaterOrEqual(f.t, c.Revision, f.last)
	} else {
		require.Greater(f.t, c.Revision, f.last)
	}
	f.last = c.Revision
	for _, e := range c.Puts {
		f.state[e.Key] = string(e.Value)
	}
	for _, key := range c.Deletes {
		delete(f.state, key)
	}
	return c
}

func (f *follower) until(reached func(map[string]string) bool) {
	f.t.Helper()
	for f.resets == 0 || !reached(f.state) {
		f.next()
	}
}

func testWatchNoGap(t *testing.T, b backend, dir string) {
	s, writer := b.open(t), b.open(t)
	put(t, writer, dir+"before", "0", 0)
	const writes = 200
	written := make(chan struct{})
	f := follow(t, s, dir)
	go func() {
		defer close(written)
		for i := range writes {
			_, _, _ = writer.Txn(context.Background(), nil, []metadata.Put{{Key: dir + "n", Value: fmt.Append(nil, i)}})
		}
	}()
	seen := -1
	for seen < writes-1 {
		c := f.next()
		value, ok := f.state[dir+"n"]
		if !ok {
			continue
		}
		var now int
		_, err := fmt.Sscan(value, &now)
		require.NoError(t, err)
		if !c.Reset {
			require.Equal(t, seen+1, now, "one change for each revision")
		}
		seen = now
	}
	<-written
	require.Equal(t, "0", f.state[dir+"before"])
	require.Equal(t, 1, f.resets)
}

func testWatchRevision(t *testing.T, b backend, dir string) {
	s := b.open(t)
	f := follow(t, s, dir)
	f.next()
	put(t, s, dir+"old", "x", 0)
	f.next()
	ok, rev, err := s.Txn(wait.Context(t), nil, []metadata.Put{
		{Key: dir + "a", Value: []byte("1")}, {Key: dir + "b", Value: []byte("2")}, {Key: dir + "old", Delete: true},
		{Key: "/elsewhere" + dir, Value: []byte("3")},
	})
	require.NoError(t, err)
	require.True(t, ok)
	c := f.next()
	require.Equal(t, rev, c.Revision)
	require.Equal(t, []string{dir + "a", dir + "b"}, keysOf(c.Puts))
	require.Equal(t, []string{dir + "old"}, c.Deletes)
}

// testCompaction lets a watch fall behind, forgets the history, and expects
// the watch to arrive at the current state nonetheless.
func testCompaction(t *testing.T, b backend, dir string) {
	s, writer := b.open(t), b.open(t)
	f := follow(t, s, dir)
	f.next()
	for round := range 5 {
		for i := range 20 {
			put(t, writer, fmt.Sprint(dir, i), fmt.Sprint(round), 0)
		}
		b.compact(t)
	}
	ok, _, err := writer.Txn(wait.Context(t), nil, []metadata.Put{{Key: dir + "0", Delete: true}, {Key: dir + "end", Value: []byte("end")}})
	require.NoError(t, err)
	require.True(t, ok)
	f.until(func(state map[string]string) bool { return state[dir+"end"] == "end" })
	require.Len(t, f.state, 20)
	require.NotContains(t, f.state, dir+"0")
	require.Equal(t, "4", f.state[dir+"7"])
}

func testReconnect(t *testing.T, b backend, dir string) {
	s := b.open(t)
	put(t, s, dir+"a", "1", 0)
	f := follow(t, s, dir)
	f.until(func(state map[string]string) bool { return state[dir+"a"] == "1" })
	b.interrupt(t, s)
	put(t, s, dir+"a", "2", 0)
	f.until(func(state map[string]string) bool { return state[dir+"a"] == "2" })
}
