package journal

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/vfs"
)

// TestReleaseKeepsWhatNoCheckpointHas: a file is written again when all of its groups
// are in a checkpoint, and not before.
func TestReleaseKeepsWhatNoCheckpointHas(t *testing.T) {
	j, _, _ := fill(t, vfs.NewMemory(), 60)
	oldest := func() *logFile {
		j.mu.Lock()
		defer j.mu.Unlock()
		return j.mu.used[0]
	}
	first := oldest()
	require.NoError(t, j.Release(first.last-1))
	require.Same(t, first, oldest())
	require.NoError(t, j.Release(first.last))
	require.NotSame(t, first, oldest())
	require.NoError(t, j.Close())
}

// TestFailureIsToldAtOnce: also when nothing is submitted; what comes after the first
// one is its consequence.
func TestFailureIsToldAtOnce(t *testing.T) {
	j, o, _ := fill(t, vfs.NewMemory(), 3)
	first := errors.New("the checkpoint failed")
	j.Fail(first)
	j.Fail(errors.New("and so did this"))
	require.Eventually(t, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.err != nil
	}, 10*time.Second, time.Millisecond)
	require.Equal(t, first, o.wait(1000))
	require.Equal(t, first, j.Err())
	require.ErrorIs(t, j.Close(), first)
}
