package session

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/stretchr/testify/require"
)

// TestContactIsWhenItWasAsked: the answer may be late, and the registration gone since.
func TestContactIsWhenItWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &slowMeta{Store: metadatatest.NewMemory()}
		defer m.Close()
		s := newSession(t, m)
		require.NoError(t, s.register(t.Context()))
		c := NewContact(s)
		named := func() time.Duration { return time.Duration(c.named.Load()) }
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { c.Run(ctx) })
		defer done.Wait()
		defer cancel()
		time.Sleep(probeEvery + answerTimeout/2)
		require.Equal(t, probeEvery, named())
		require.NoError(t, newSession(t, m.Store).register(ctx))
		time.Sleep(2 * answerTimeout)
		require.Equal(t, probeEvery, named(), "that is another run")
	})
}

// slowMeta answers late.
type slowMeta struct{ metadata.Store }

func (m *slowMeta) Get(ctx context.Context, key string) (metadata.Entry, error) {
	time.Sleep(2 * answerTimeout / 5)
	return m.Store.Get(ctx, key)
}

// TestLeaderLivesOnTheAnswersOfTheMetadata: the store is asked more often while a leader
// depends on it, and the age of its last answer counts from the question.
func TestLeaderLivesOnTheAnswersOfTheMetadata(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metadatatest.NewMemory()
		defer m.Close()
		s := newSession(t, m)
		require.NoError(t, s.register(t.Context()))
		c := NewContact(s)
		var done sync.WaitGroup
		defer done.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done.Go(func() { c.Run(ctx) })
		time.Sleep(10*idleProbe + time.Millisecond)
		age := func() time.Duration { now := time.Now(); return now.Sub(c.Named(now)) }
		require.LessOrEqual(t, age(), idleProbe+time.Millisecond)
		for range 10 {
			time.Sleep(probeEvery)
			require.LessOrEqual(t, age(), probeEvery+time.Millisecond)
		}
		require.Zero(t, c.Unheard())
	})
}
