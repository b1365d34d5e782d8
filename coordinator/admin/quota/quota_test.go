package quota

import (
	"context"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/catalog"
	"github.com/lockstepmq/lockstep/coordinator/meta"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// rig is the quotas of a broker, over metadata that the test writes.
type rig struct {
	*Quotas
	catalog *catalog.Catalog
	keys    meta.Keys
	rev     int64
	notes   []string
}

func newRig(l Limits) *rig {
	r := &rig{keys: meta.Keys{Cluster: "test"}}
	r.catalog = catalog.New(r.keys, logrus.New())
	r.Quotas = New(l, r.catalog, func(_ edge.Requester, what string, err error) {
		if err != nil {
			what += ": refused"
		}
		r.notes = append(r.notes, what)
	})
	return r
}

func (r *rig) write(key string, value []byte) {
	r.rev++
	r.catalog.Apply(meta.Change{Revision: r.rev, Puts: []meta.Entry{{Key: key, Value: value, Mod: r.rev, Create: r.rev}}})
}

func (r *rig) topic(id ident.TopicID, name, owner string, partitions int) {
	r.write(r.keys.Topic(name), meta.Encode(meta.TopicState{V: meta.Version, ID: id, Partitions: partitions, Owner: owner}))
}

func as(t *testing.T, who edge.Requester) context.Context {
	who.Identity = who.User
	return edge.WithRequester(t.Context(), func() edge.Requester { return who })
}

// TestACreationCountsOnce: while it is under way, when the metadata shows it and it is not done yet, and after.
func TestACreationCountsOnce(t *testing.T) {
	r := newRig(Limits{Topics: 2})
	ctx := as(t, edge.Requester{User: "ann"})
	done, err := r.Topic(ctx, "a", 1)
	require.NoError(t, err)
	r.topic(1, "a", "ann", 1)
	other, err := r.Topic(ctx, "b", 1)
	require.NoError(t, err, "a counts once")
	_, err = r.Topic(ctx, "c", 1)
	require.ErrorIs(t, err, edge.ErrQuota)
	require.Equal(t, []string{"create topic c: refused"}, r.notes)
	other() // it failed: nothing was written
	done()
	_, err = r.Topic(ctx, "c", 1)
	require.NoError(t, err)
}

// TestTheQuotaOfAUser: other users' topics count for the cluster alone.
func TestTheQuotaOfAUser(t *testing.T) {
	r := newRig(Limits{Partitions: 10})
	r.topic(1, "a", "bob", 5)
	ann := edge.Requester{User: "ann"}
	ann.Partitions = 4
	ctx := as(t, ann)
	_, err := r.Topic(ctx, "b", 5)
	require.ErrorContains(t, err, "user ann has 0 of 4 partitions")
	done, err := r.Topic(ctx, "b", 4)
	require.NoError(t, err)
	r.topic(2, "b", "ann", 4)
	done()
	require.ErrorContains(t, r.Partitions(ctx, "bob", 2), "the cluster has 9 of 10 partitions")
	require.NoError(t, r.Partitions(ctx, "bob", 1), "they are bob's")
	require.ErrorContains(t, r.Partitions(ctx, "ann", 1), "user ann has 4 of 4 partitions")
}

// TestChannelsOfATopic: one that is there, or is being created by another caller here, is admitted.
func TestChannelsOfATopic(t *testing.T) {
	r := newRig(Limits{Channels: 1})
	r.topic(1, "a", "", 1)
	ctx := as(t, edge.Requester{User: "ann"})
	first, isFirst, err := r.Channel(ctx, "a", "x")
	require.NoError(t, err)
	require.True(t, isFirst)
	second, isFirst, err := r.Channel(ctx, "a", "x")
	require.NoError(t, err)
	require.False(t, isFirst)
	first()
	_, _, err = r.Channel(ctx, "a", "y")
	require.ErrorIs(t, err, edge.ErrQuota, "the second caller creates x")
	second()
	_, _, err = r.Channel(ctx, "a", "y")
	require.NoError(t, err)
	require.NoError(t, r.Ephemeral([]string{"x", "e#ephemeral"}, "e#ephemeral"), "it is there")
	require.ErrorIs(t, r.Ephemeral([]string{"x", "e#ephemeral"}, "f#ephemeral"), edge.ErrQuota)
}
