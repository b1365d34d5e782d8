package catalog

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
)

// TestCatalogForgetsTopicsThatWereMadeAgain: a topic of one name is deleted and created
// again a hundred times. The catalog keeps the entries of one topic.
func TestCatalogForgetsTopicsThatWereMadeAgain(t *testing.T) {
	keys := metadata.Keys{Cluster: "test"}
	c := New(keys, logrus.New())
	rev := int64(0)
	apply := func(puts []metadata.Entry, deletes ...string) {
		rev++
		for i := range puts {
			puts[i].Mod = rev
		}
		c.Apply(metadata.Change{Revision: rev, Puts: puts, Deletes: deletes})
	}
	for id := range ident.TopicID(100) {
		s := metadata.TopicState{V: metadata.Version, ID: id + 1, Partitions: 1}
		channel := keys.Channel(s.ID, "billing")
		apply([]metadata.Entry{{Key: keys.Topic("orders"), Value: metadata.Encode(s)}})
		apply([]metadata.Entry{{Key: channel, Value: metadata.Encode(metadata.ChannelState{V: metadata.Version, ID: 1})}})
		s.Deleted = true
		apply([]metadata.Entry{{Key: keys.Topic("orders"), Value: metadata.Encode(s)}})
		apply(nil, channel)
	}
	require.Len(t, c.mu.topics, 1)
	require.Len(t, c.mu.names, 1, "names of topics that are gone")
	require.Empty(t, c.mu.channels, "channels of topics that are gone")
}

// TestTopicOfAWrongClockCanBeDeleted: the broker that deleted a topic is years ahead, or
// behind. The topic comes back with a put, and goes with the next delete; one that comes
// at once, from nsqadmin, is the same delete.
const repeat = 10 * time.Second

func TestTopicOfAWrongClockCanBeDeleted(t *testing.T) {
	for _, wrong := range []time.Duration{-10 * 365 * 24 * time.Hour, -time.Hour, time.Hour, 10 * 365 * 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			keys := metadata.Keys{Cluster: "test"}
			c := New(keys, logrus.New())
			write := func(s metadata.TopicState) {
				s.V, s.Partitions = metadata.Version, 1
				c.Apply(metadata.Change{Puts: []metadata.Entry{{Key: keys.Topic("orders"), Value: metadata.Encode(s)}}})
			}
			write(metadata.TopicState{ID: 1})
			require.False(t, c.DeletedLately("orders", 0, repeat))
			gone := metadata.TopicState{V: metadata.Version, ID: 1, Partitions: 1, Deleted: true, DeletedAtMS: time.Now().Add(wrong).UnixMilli()}
			require.True(t, c.DeletedLately("orders", gone.DeletedAtMS, repeat), "not heard of yet, %v", wrong)
			write(gone)
			require.True(t, c.DeletedLately("orders", gone.DeletedAtMS, repeat), "%v", wrong)
			write(metadata.TopicState{ID: 2, DeletedAtMS: gone.DeletedAtMS})
			require.True(t, c.DeletedLately("orders", gone.DeletedAtMS, repeat), "made again by a put, %v", wrong)
			time.Sleep(repeat)
			require.False(t, c.DeletedLately("orders", gone.DeletedAtMS, repeat), "this is another delete, %v", wrong)
			write(gone)
			write(metadata.TopicState{ID: 3})
			require.False(t, c.DeletedLately("orders", 0, repeat), "made again by name")

			late := New(keys, logrus.New()) // of a broker that is started now
			late.Apply(metadata.Change{Reset: true, Puts: []metadata.Entry{{Key: keys.Topic("orders"), Value: metadata.Encode(gone)}}})
			require.False(t, late.DeletedLately("orders", gone.DeletedAtMS, repeat))
		})
	}
}

// TestCatalogTakesManyChannelsAtOnce: the map that readers keep is copied once in a
// change, not for each channel in it.
func TestCatalogTakesManyChannelsAtOnce(t *testing.T) {
	keys := metadata.Keys{Cluster: "test"}
	c := New(keys, logrus.New())
	var puts []metadata.Entry
	var deletes []string
	for i := range 2000 {
		key := keys.Channel(1, fmt.Sprint("c", i))
		puts = append(puts, metadata.Entry{Key: key, Value: metadata.Encode(metadata.ChannelState{V: metadata.Version, ID: 1})})
		deletes = append(deletes, key)
	}
	allocated := func(ch metadata.Change) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c.Apply(ch)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	require.Less(t, allocated(metadata.Change{Reset: true, Puts: puts}), uint64(32<<20))
	old := c.Channels(1)
	require.Less(t, allocated(metadata.Change{Deletes: deletes[1:]}), uint64(32<<20))
	require.Len(t, old, 2000, "a reader's map changed")
	require.Len(t, c.Channels(1), 1)
}
