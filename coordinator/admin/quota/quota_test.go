package quota

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// rig is the quotas of a broker, over metadata that the test writes.
type rig struct {
	*Quotas
	catalog *catalog.Catalog
	keys    metadata.Keys
	rev     int64
	notes   []string
}

func newRig(l Limits) *rig {
	r := &rig{keys: metadata.Keys{Cluster: "test"}}
	r.catalog = catalog.New(r.keys, logrus.New())
	r.Quotas = New(l, r.catalog, func(_ api.Requester, what string, err error) {
		if err != nil {
			what += ": refused"
		}
		r.notes = append(r.notes, what)
	})
	return r
}

func (r *rig) write(key string, value []byte) {
	r.rev++
	r.catalog.Apply(metadata.Change{Revision: r.rev, Puts: []metadata.Entry{{Key: key, Value: value, Mod: r.rev, Create: r.rev}}})
}

func (r *rig) topic(id ident.TopicID, name, owner string, partitions int) {
	r.write(r.keys.Topic(name), metadata.Encode(metadata.TopicState{V: metadata.Version, ID: id, Partitions: partitions, Owner: owner}))
}

func as(t *testing.T, who api.Requester) context.Context {
	who.Identity = who.User
	return api.WithRequester(t.Context(), func() api.Requester { return who })
}

// TestACreationCountsOnce: while it is in progress, when the metadata shows it and it is not done yet, and after.
func TestACreationCountsOnce(t *testing.T) {
	r := newRig(Limits{Topics: 2})
	ctx := as(t, api.Requester{User: "ann"})
	done, err := r.Topic(ctx, "a", 1)
	require.NoError(t, err)
	r.topic(1, "a", "ann", 1)
	other, err := r.Topic(ctx, "b", 1)
	require.NoError(t, err, "a counts once")
	_, err = r.Topic(ctx, "c", 1)
	require.ErrorIs(t, err, outcome.ErrQuota)
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
	ann := api.Requester{User: "ann"}
	ann.Partitions = 4
	ctx := as(t, ann)
	_, err := r.Topic(ctx, "b", 5)
	require.ErrorContains(t, err, "user ann has 0 of 4 partitions")
	done, err := r.Topic(ctx, "b", 4)
	require.NoError(t, err)
	r.topic(2, "b", "ann", 4)
	done()
	_, err = r.Partitions(ctx, "a", "bob", 5, 7)
	require.ErrorContains(t, err, "the cluster has 9 of 10 partitions")
	done, err = r.Partitions(ctx, "a", "bob", 5, 6)
	require.NoError(t, err, "they are bob's")
	done()
	_, err = r.Partitions(ctx, "b", "ann", 4, 5)
	require.ErrorContains(t, err, "user ann has 4 of 4 partitions")
}

// TestThePaceOfAUser: a user with a quota creates topics at a bounded rate, whatever it has; others do not wait for it.
func TestThePaceOfAUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(Limits{})
		create := func(who api.Requester) (made int) {
			for i := range 616 {
				done, err := r.Topic(as(t, who), fmt.Sprint(who.User, i), 1)
				if err != nil {
					require.ErrorIs(t, err, outcome.ErrRateLimited)
					require.ErrorContains(t, err, "user "+who.User+" has created 100 topics within seconds, and may create 5 a second now")
					continue
				}
				done()
				made++
			}
			return made
		}
		ann := api.Requester{User: "ann"}
		ann.Topics = 1000
		require.Equal(t, 100, create(ann))
		require.Equal(t, 616, create(api.Requester{User: "root"}), "no quota")
		bob := ann
		bob.User = "bob"
		require.Equal(t, 100, create(bob))
		<-time.After(10 * time.Second)
		require.Equal(t, 50, create(ann))
	})
}

// TestAGrowthCountsOnce: alongside creations and other growths that are in progress, and when the metadata shows it,
// also without the broker that began it.
func TestAGrowthCountsOnce(t *testing.T) {
	r := newRig(Limits{Partitions: 10})
	r.topic(1, "a", "ann", 2)
	r.topic(2, "b", "ann", 2)
	ann := api.Requester{User: "ann"}
	ann.Partitions = 9
	ctx := as(t, ann)
	created, err := r.Topic(ctx, "c", 4)
	require.NoError(t, err)
	_, err = r.Partitions(ctx, "a", "ann", 2, 5)
	require.EqualError(t, err, "quota reached, nothing stored: the cluster has 8 of 10 partitions (--max-partitions)", "the creation of c is under way")
	_, err = r.Partitions(ctx, "a", "ann", 2, 4)
	require.EqualError(t, err, "quota reached, nothing stored: user ann has 8 of 9 partitions")
	created() // it failed
	grown, err := r.Partitions(ctx, "a", "ann", 2, 6)
	require.NoError(t, err)
	_, err = r.Topic(ctx, "c", 2)
	require.EqualError(t, err, "quota reached, nothing stored: user ann has 8 of 9 partitions", "the growth of a is under way")
	_, err = r.Partitions(ctx, "b", "ann", 2, 4)
	require.EqualError(t, err, "quota reached, nothing stored: user ann has 8 of 9 partitions")
	r.write(r.keys.Topic("a"), metadata.Encode(metadata.TopicState{V: metadata.Version, ID: 1, Partitions: 2, Growing: 6, Owner: "ann"}))
	_, err = r.Topic(ctx, "c", 2)
	require.EqualError(t, err, "quota reached, nothing stored: user ann has 8 of 9 partitions", "a counts once")
	grown()
	_, err = r.Topic(ctx, "c", 2)
	require.EqualError(t, err, "quota reached, nothing stored: user ann has 8 of 9 partitions", "its new partitions are there")
	require.Equal(t, 8, r.Limits().Partitions.Used)
	_, err = r.Topic(ctx, "c", 1)
	require.NoError(t, err)
}

// TestChannelsOfATopic: one that is there, or is being created by another caller here, is admitted.
func TestChannelsOfATopic(t *testing.T) {
	r := newRig(Limits{Channels: 1})
	r.topic(1, "a", "", 1)
	ctx := as(t, api.Requester{User: "ann"})
	first, isFirst, err := r.Channel(ctx, "a", "x")
	require.NoError(t, err)
	require.True(t, isFirst)
	second, isFirst, err := r.Channel(ctx, "a", "x")
	require.NoError(t, err)
	require.False(t, isFirst)
	first()
	_, _, err = r.Channel(ctx, "a", "y")
	require.ErrorIs(t, err, outcome.ErrQuota, "the second caller creates x")
	second()
	_, _, err = r.Channel(ctx, "a", "y")
	require.NoError(t, err)
	require.NoError(t, r.Ephemeral([]string{"x", "e#ephemeral"}, "e#ephemeral"), "it is there")
	require.ErrorIs(t, r.Ephemeral([]string{"x", "e#ephemeral"}, "f#ephemeral"), outcome.ErrQuota)
}
