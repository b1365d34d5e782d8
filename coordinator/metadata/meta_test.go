package metadata_test

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// TestMain runs many tests at once: they wait for leases that run out.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "16")
	flag.Parse()                   // -parallel prevails
	wal.SegmentSizeBytes = 1 << 20 // etcd allocates the file of each member's log in advance
	// etcd closes its log rotation and gRPC keep-alives behind our back.
	wait.Main(m, goleak.IgnoreTopFunction("gopkg.in/natefinch/lumberjack%2ev2.(*Logger).millRun"))
}

func TestKeysRoundTrip(t *testing.T) {
	k := metadata.Keys{Cluster: "c"}
	p := ident.Partition{Topic: 0xabc, Number: 7}
	got, ok := k.ParsePartition(k.Partition(p))
	require.True(t, ok)
	require.Equal(t, p, got)
	topic, channel, ok := k.ParseChannel(k.Channel(p.Topic, "audit#ephemeral"))
	require.True(t, ok)
	require.Equal(t, p.Topic, topic)
	require.Equal(t, "audit#ephemeral", channel)
	node, ok := k.ParseLive(k.Live("n1"))
	require.True(t, ok)
	require.Equal(t, ident.Node("n1"), node)
	node, ok = k.ParseNode(k.Node("n2"))
	require.True(t, ok)
	require.Equal(t, ident.Node("n2"), node)
	name, ok := k.ParseTopic(k.Topic("orders"))
	require.True(t, ok)
	require.Equal(t, "orders", name)
}

func TestKeysRefuseOthers(t *testing.T) {
	k := metadata.Keys{Cluster: "c"}
	for _, key := range []string{
		"", k.Partitions(), k.Partitions() + "abc/1", k.Partitions() + "000000000000000g/1",
		k.Partitions() + "0000000000000abc", k.Partitions() + "0000000000000abc/70000", k.Topic("x"),
	} {
		_, ok := k.ParsePartition(key)
		require.False(t, ok, key)
		_, _, ok = k.ParseChannel(key)
		require.False(t, ok, key)
	}
}

func TestDecode(t *testing.T) {
	state := metadata.PartitionState{V: metadata.Version, Replicas: []ident.Node{"n1"}, ISR: []ident.Member{{Node: "n1", Store: 9}}, Leader: "n1", LeaderIncarnation: 4, Epoch: 2, MinInSync: 1, Durability: metadata.DurabilitySync}
	got, err := metadata.DecodePartition(metadata.Entry{Key: "k", Value: metadata.Encode(state), Mod: 12})
	require.NoError(t, err)
	state.Revision = 12
	require.Equal(t, state, got)

	_, err = metadata.DecodeTopic(metadata.Entry{Key: "k", Value: []byte(`{"v":2}`)})
	require.ErrorIs(t, err, metadata.ErrValue, "a newer version is not guessed at")
	_, err = metadata.DecodeChannel(metadata.Entry{Key: "k", Value: []byte(`{}`)})
	require.ErrorIs(t, err, metadata.ErrValue)
	_, err = metadata.DecodeNode(metadata.Entry{Key: "k", Value: []byte(`not json`)})
	require.ErrorIs(t, err, metadata.ErrValue)
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"v":1,"replicas":["n1"],"isr":[{"node":"n1","store":"0000000000000009"}]}`))
	f.Add([]byte(`{"v":1,"name":"n1"}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		e := metadata.Entry{Key: "k", Value: value, Mod: 3}
		if s, err := metadata.DecodePartition(e); err == nil {
			again, err := metadata.DecodePartition(metadata.Entry{Key: "k", Value: metadata.Encode(s), Mod: 3})
			require.NoError(t, err)
			require.Equal(t, s, again)
		}
		_, _ = metadata.DecodeTopic(e)
		_, _ = metadata.DecodeChannel(e)
		_, _ = metadata.DecodeNode(e)
	})
}
