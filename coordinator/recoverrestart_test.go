package coordinator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// lostSet is a partition whose in-sync set is lost, as an operator finds it: one member is away with its disk, the
// other one runs with an empty disk, and the third replica lacks five of 15 messages.
type lostSet struct {
	*cluster
	lagging, away, wiped string

	before    func()        // runs once: between the question to the brokers and the transaction
	elections chan struct{} // full: no broker changes the partition's key
}

func newLostSet(t *testing.T) *lostSet {
	s, keys := &lostSet{elections: make(chan struct{}, 1)}, metadata.Keys{Cluster: "test"}
	writes := func(puts []metadata.Put, prefix string) bool {
		return slices.ContainsFunc(puts, func(p metadata.Put) bool { return !p.Delete && strings.HasPrefix(p.Key, prefix) })
	}
	hook := func(_ context.Context, puts []metadata.Put) {
		switch {
		case writes(puts, keys.Audit("")):
			s.before()
		case writes(puts, keys.Partitions()):
			s.elections <- struct{}{}
			<-s.elections
		}
	}
	s.cluster = newClusterOf(t, cluster{size: 3, wrap: func(_ string, m metadata.Store) metadata.Store { return hookedMeta{Store: m, txn: hook} }})
	require.NoError(t, s.administer("n1", "topic.create", "orders", nil))
	s.whole("orders")
	s.publish(s.leader("orders"), 0, 10)
	s.whole("orders")
	s.wiped = s.leader("orders")
	s.lagging = map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[s.wiped]
	s.away = map[string]string{"n1": "n3", "n2": "n1", "n3": "n2"}[s.wiped]
	s.kill(s.lagging)
	s.publish(s.wiped, 10, 15)
	s.kill(s.away)
	s.kill(s.wiped)
	s.wipe(s.wiped)
	if e, err := s.meta.Get(t.Context(), keys.Live(ident.Node(s.away))); err == nil {
		s.meta.Expire(e.Lease) // the others were killed before they revoked it
	}
	s.restart(s.lagging)
	s.restart(s.wiped)
	s.eventually(func() bool {
		r, err := s.nodes[s.lagging].Remains(t.Context(), "orders", 0)
		return err == nil && r.Refused == "" && len(r.Replicas) == 2
	}, "not ready to be recovered")
	return s
}

func (s *lostSet) publish(on string, from, to int) {
	for i := from; i < to; i++ {
		require.NoError(s.t, s.put(on, "orders", fmt.Sprintf("m%d", i)))
	}
}

// recoverBeside recovers the partition from the replica that lacks messages. It calls
// happens when the brokers have answered and nothing is written yet.
func (s *lostSet) recoverBeside(happens func()) error {
	s.elections <- struct{}{}
	defer func() { <-s.elections }()
	s.before = happens
	_, err := s.nodes[s.lagging].Recover(s.t.Context(), "orders", 0, ident.Node(s.lagging))
	return err
}

func (s *lostSet) recoveries() []metadata.Entry {
	records, _, err := s.meta.List(s.t.Context(), metadata.Keys{Cluster: "test"}.Audit(""))
	require.NoError(s.t, err)
	return records
}

// TestRecoveryBesideAMemberThatComesBack: the member that was away is started after the brokers were asked, with all
// that was acknowledged. The recovery that the operator decided upon without it does not happen, and nothing is lost.
func TestRecoveryBesideAMemberThatComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newLostSet(t)
		err := s.recoverBeside(func() { s.restart(s.away) })
		require.ErrorIs(t, err, outcome.ErrUnavailable)
		require.Empty(t, s.recoveries())
		s.whole("orders")
		require.Len(t, s.drain(s.lagging, "orders", 15), 15)
	})
}

// TestRecoveryBesideAChange: the transaction holds only if nothing that the decision rests
// on has changed. The operator asks again, and may then recover.
func TestRecoveryBesideAChange(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *lostSet){
		"a member was started again": func(s *lostSet) { s.kill(s.wiped); s.restart(s.wiped) },
		"a registration ended":       func(s *lostSet) { s.expire(s.wiped) },
		"the partition's state was written": func(s *lostSet) {
			topic, _ := s.nodes[s.lagging].Topic("orders")
			key := metadata.Keys{Cluster: "test"}.Partition(topic.Partition(0))
			e, err := s.meta.Get(s.t.Context(), key)
			require.NoError(s.t, err)
			_, _, err = s.meta.Txn(s.t.Context(), nil, []metadata.Put{{Key: key, Value: e.Value}})
			require.NoError(s.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newLostSet(t)
				require.ErrorIs(t, s.recoverBeside(func() { change(s) }), outcome.ErrUnavailable)
				require.Empty(t, s.recoveries())
				s.eventually(func() bool { return s.recoverBeside(func() {}) == nil }, "not recovered")
				require.Len(t, s.recoveries(), 1)
				s.leader("orders")
			})
		})
	}
}
