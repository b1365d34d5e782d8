package admission_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/internal/auth/admission"
)

var keys = metadata.Keys{Cluster: "c"}

// bubble runs a test in virtual time, with two brokers that follow one store.
func bubble(t *testing.T, test func(t *testing.T, store *metadatatest.Memory, one, other *admission.Registry)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := metadatatest.NewMemory()
		log := logrus.New()
		log.SetOutput(io.Discard)
		ctx, cancel := context.WithCancel(t.Context())
		var all []*admission.Registry
		for range 2 {
			r := admission.New(admission.Options{Keys: keys, Log: log})
			_, err := r.Invite(ctx, "n4", time.Hour)
			require.ErrorIs(t, err, admission.ErrNotReady)
			require.ErrorIs(t, r.Withdraw(ctx, "n4"), admission.ErrNotReady)
			go r.Watch(ctx, store)
			all = append(all, r)
		}
		synctest.Wait()
		test(t, store, all[0], all[1])
		cancel()
		require.NoError(t, store.Close())
		synctest.Wait()
	})
}

// TestAnInvitationEnds: every broker admits the name, for the time of the invitation.
func TestAnInvitationEnds(t *testing.T) {
	bubble(t, func(t *testing.T, _ *metadatatest.Memory, one, other *admission.Registry) {
		require.Empty(t, other.Invited())
		until, err := one.Invite(t.Context(), "n4.example", time.Hour)
		require.NoError(t, err)
		require.Equal(t, time.Hour, time.Until(until))
		synctest.Wait()
		for _, r := range []*admission.Registry{one, other} {
			require.Equal(t, []string{"n4.example"}, r.Invited())
		}
		time.Sleep(time.Hour - time.Millisecond)
		require.Equal(t, []string{"n4.example"}, other.Invited())
		time.Sleep(time.Millisecond)
		require.Empty(t, one.Invited())
		require.Empty(t, other.Invited())
	})
}

// TestAnInvitationIsForOneBroker: the broker that has joined removes its invitation, and no other one.
func TestAnInvitationIsForOneBroker(t *testing.T) {
	bubble(t, func(t *testing.T, store *metadatatest.Memory, one, other *admission.Registry) {
		for _, name := range []string{"n4", "n5"} {
			_, err := one.Invite(t.Context(), name, time.Hour)
			require.NoError(t, err)
		}
		require.NoError(t, admission.Joined(t.Context(), store, keys, "n4"))
		synctest.Wait()
		require.Equal(t, []string{"n5"}, other.Invited())
		require.NoError(t, admission.Joined(t.Context(), store, keys, "n4"), "a later start")
		require.NoError(t, one.Withdraw(t.Context(), "n5"))
		require.NoError(t, one.Withdraw(t.Context(), "n5"))
		synctest.Wait()
		require.Empty(t, other.Invited())
		_, err := one.Invite(t.Context(), "n4", time.Minute)
		require.NoError(t, err, "again, after it was removed")
		synctest.Wait()
		require.Equal(t, []string{"n4"}, other.Invited())
	})
}

// TestEndedInvitationsAreRemoved: by the next one. So their number is bounded.
func TestEndedInvitationsAreRemoved(t *testing.T) {
	bubble(t, func(t *testing.T, store *metadatatest.Memory, one, _ *admission.Registry) {
		for i := range 100 {
			_, err := one.Invite(t.Context(), fmt.Sprint("n", i), time.Hour)
			require.NoError(t, err)
			synctest.Wait()
		}
		_, err := one.Invite(t.Context(), "one-more", time.Hour)
		require.ErrorContains(t, err, "100 brokers are invited")
		_, err = one.Invite(t.Context(), "n7", 2*time.Hour)
		require.NoError(t, err, "a longer one of a broker that is invited")
		synctest.Wait()
		time.Sleep(time.Hour)
		_, err = one.Invite(t.Context(), "one-more", time.Hour)
		require.NoError(t, err)
		left, _, err := store.List(t.Context(), keys.Invitations())
		require.NoError(t, err)
		require.Len(t, left, 2)
		synctest.Wait()
		require.ElementsMatch(t, []string{"n7", "one-more"}, one.Invited())
	})
}

// TestWhatInvitesNobody: names that no broker can have, times without an end, and values that cannot be read.
func TestWhatInvitesNobody(t *testing.T) {
	bubble(t, func(t *testing.T, store *metadatatest.Memory, one, other *admission.Registry) {
		for _, name := range []string{"", "a/b", "a=b", "a,b", "a b", "a\nb", "a\x00b", string(make([]byte, 300))} {
			_, err := one.Invite(t.Context(), name, time.Hour)
			require.ErrorIs(t, err, admission.ErrInvalid, "%q", name)
			require.ErrorIs(t, one.Withdraw(t.Context(), name), admission.ErrInvalid, "%q", name)
		}
		for _, length := range []time.Duration{0, -time.Hour, admission.MaxTime + 1} {
			_, err := one.Invite(t.Context(), "n4", length)
			require.ErrorIs(t, err, admission.ErrInvalid, "%v", length)
		}
		_, err := one.Invite(t.Context(), "n4", time.Hour)
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, []string{"n4"}, other.Invited())
		_, _, err = store.Txn(t.Context(), nil, []metadata.Put{{Key: keys.Invitation("n4"), Value: []byte("{")}, {Key: keys.Invitation("n5"), Value: []byte("{}")}})
		require.NoError(t, err)
		synctest.Wait()
		require.Empty(t, other.Invited())
	})
	r := admission.New(admission.Options{Keys: keys, NotNeeded: "an external etcd admits brokers"})
	_, err := r.Invite(t.Context(), "n4", time.Hour)
	require.ErrorContains(t, err, "an external etcd admits brokers")
}
