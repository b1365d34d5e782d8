package maintenance

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
)

// TestClockIsNeverAhead: it counts the time in which a controller reads it, whichever broker that is,
// and loses less than the pause between two writes at each change.
func TestClockIsNeverAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, keys := metadatatest.NewMemory(), metadata.Keys{Cluster: "test"}
		defer store.Close()
		tenure := func() metadata.Compare { // each controller writes its key again
			_, _, err := store.Txn(t.Context(), nil, []metadata.Put{{Key: keys.Controller(), Delete: true}})
			require.NoError(t, err)
			_, rev, err := store.Txn(t.Context(), nil, []metadata.Put{{Key: keys.Controller(), Value: []byte("n")}})
			require.NoError(t, err)
			return metadata.Compare{Key: keys.Controller(), Create: rev, Mod: -1}
		}
		brokers, counted, began := []*clock{newClock(store, keys), newClock(store, keys)}, int64(0), time.Now()
		for i := range 10 {
			c, fence := brokers[i%2], tenure()
			for range 30 {
				now, err := c.read(t.Context(), fence)
				require.NoError(t, err)
				require.LessOrEqual(t, now, time.Since(began).Milliseconds()+1)
				require.GreaterOrEqual(t, now, counted-clockEvery.Milliseconds())
				counted = now
				time.Sleep(time.Second)
			}
			other := tenure()
			time.Sleep(clockEvery)
			_, err := c.read(t.Context(), fence)
			require.Error(t, err, "another broker controls")
			require.NotEqual(t, fence, other)
		}
		require.Greater(t, counted, 10*(30_000-clockEvery.Milliseconds())-30_000)
	})
}
