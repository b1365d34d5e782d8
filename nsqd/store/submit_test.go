package store

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// TestSubmissionsOfSeveralLoops: several core loops submit at the same time, each the writes of its
// own partition. After a power cut that leaves only the journal, each partition ends where its last
// acknowledged submission ended.
func TestSubmissionsOfSeveralLoops(t *testing.T) {
	const loops, submissions, bodyBytes = 4, 80, 8 << 10
	mem := vfstest.NewMemory()
	o := testOptions(mem)
	o.CheckpointBytes, o.JournalBytes = 1<<30, 1<<20 // no checkpoint: the journal alone is synced
	s := reopen(t, o)
	models := make([]*model, loops)
	for n := range models {
		p, err := s.Create("t", ident.Partition{Topic: 1, Number: uint16(n)})
		require.NoError(t, err)
		models[n] = &model{p: p, borders: []border{{}}}
	}
	var running sync.WaitGroup
	for n, m := range models {
		running.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(n)))
			synced := make(answer, submissions)
			for range submissions {
				d := queue.NewDraft(bodyBytes)
				_ = d.AddMessage(queue.Message{Body: make([]byte, bodyBytes)})
				w := queue.Write{Kind: queue.WriteAppend, Batches: []queue.Batch{m.batch(rng, d.Draft(ident.RequestID{}))}}
				s.Submit([]Submission{{m.p, []queue.Write{w}}}, synced, 1)
			}
			for range submissions {
				if err := <-synced; err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	for seed := range uint64(4) { // decides which unsynced bytes survive
		after, err := Open(testOptions(mem.CrashClone(rand.New(rand.NewPCG(seed, 1)))))
		require.NoError(t, err)
		for n, p := range after.Partitions() {
			require.Equal(t, models[n].end().at, p.Restored().End, "partition %d ends before its acknowledged end", n)
			require.Equal(t, models[n].p.StoreID(), p.StoreID())
		}
		require.NoError(t, after.Close())
	}
}
