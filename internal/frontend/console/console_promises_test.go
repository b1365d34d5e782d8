package console_test

import (
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
)

// TestPromiseTenThousandTopics: with 10,000 topics, an answer takes at most 300 ms of the processor, for all three
// brokers, with the JSON between them. Ten open pages, which share the tables, take at most 100 ms for each answer.
func TestPromiseTenThousandTopics(t *testing.T) {
	pages := tenThousandTopics(t)
	for what, ask := range pages {
		time.Sleep(1100 * time.Millisecond) // the table of the last question is too old
		before := processorTime(t)
		raw, err := json.Marshal(ask())
		require.NoError(t, err)
		used := processorTime(t) - before
		t.Logf("%s: %s of the processor, %d bytes", what, used, len(raw))
		require.Positive(t, used)
		require.LessOrEqual(t, used, env.Within(t, 300*time.Millisecond), what)
	}

	const turns, each = 3, 2 * time.Second
	began, before := time.Now(), processorTime(t)
	var open sync.WaitGroup
	for i := range 10 {
		ask := pages[slices.Sorted(maps.Keys(pages))[i%len(pages)]]
		open.Go(func() {
			time.Sleep(time.Duration(i) * each / 10)
			for range turns {
				asked := time.Now()
				_, err := json.Marshal(ask())
				assert.NoError(t, err)
				time.Sleep(each - time.Since(asked))
			}
		})
	}
	open.Wait()
	used := processorTime(t) - before
	cores := used.Seconds() / time.Since(began).Seconds()
	t.Logf("ten open pages: %.2f cores of all three brokers, %s for each answer", cores, used/(10*turns))
	require.LessOrEqual(t, used/(10*turns), env.Within(t, 100*time.Millisecond), "the pages share the tables")
}

// processorTime is what this process has used.
func processorTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
