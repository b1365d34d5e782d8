package txn

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/catalog"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a proposer on a memory store, with registrations of n1 and n2.
type bench struct {
	t       *testing.T
	store   *metadatatest.Memory
	faulty  *lossy
	keys    metadata.Keys
	catalog *catalog.Catalog
	p       *Proposer
	events  chan posted
	run     atomic.Int64 // incarnation of n1, as the proposer has it
}

type posted struct {
	id ident.Partition
	ev replica.Event
}

// lossy loses the answers of transactions while lose is set.
type lossy struct {
	metadata.Store
	mu   sync.Mutex
	lose bool
	txns int

	reads int // of many keys
	mute  int // so many of them have no answer
}

func (l *lossy) GetAll(ctx context.Context, keys []string) ([]metadata.Entry, error) {
	l.mu.Lock()
	l.reads++
	l.mute--
	mute := l.mute >= 0
	l.mu.Unlock()
	if mute {
		return nil, metadata.ErrUnavailable
	}
	return l.Store.GetAll(ctx, keys)
}

func (l *lossy) Txn(ctx context.Context, cmp []metadata.Compare, puts []metadata.Put) (bool, int64, error) {
	ok, rev, err := l.Store.Txn(ctx, cmp, puts)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.txns++
	if l.lose {
		return false, 0, metadata.ErrUnknown
	}
	return ok, rev, err
}

func newBench(t *testing.T) *bench {
	log := logrus.New()
	log.SetOutput(io.Discard)
	b := &bench{t: t, store: metadatatest.NewMemory(), keys: metadata.Keys{Cluster: "test"}, events: make(chan posted, 256)}
	b.faulty = &lossy{Store: b.store}
	b.catalog = catalog.New(b.keys, log)
	b.run.Store(int64(b.register("n1")))
	b.register("n2")
	b.p = NewProposer(ProposerOptions{
		Store: b.faulty, Keys: b.keys, Self: "n1", Incarnation: func() ident.Incarnation { return ident.Incarnation(b.run.Load()) },
		Catalog: b.catalog, Log: log,
		Post: func(id ident.Partition, ev replica.Event) { b.events <- posted{id, ev} },
	})
	t.Cleanup(func() {
		b.p.Stop()
		require.NoError(t, b.store.Close())
	})
	return b
}

func (b *bench) register(n ident.Node) ident.Incarnation {
	return ident.Incarnation(b.write(b.keys.Live(n), metadata.NodeState{V: 1, Name: n}))
}

// write puts a key and shows it to the catalog, as the watch would.
func (b *bench) write(key string, v any) int64 {
	b.t.Helper()
	_, rev, err := b.store.Txn(context.Background(), nil, []metadata.Put{{Key: key, Value: metadata.Encode(v)}})
	require.NoError(b.t, err)
	e, err := b.store.Get(context.Background(), key)
	require.NoError(b.t, err)
	b.catalog.Apply(metadata.Change{Puts: []metadata.Entry{e}})
	return rev
}

func (b *bench) partition(n uint16) (ident.Partition, metadata.PartitionState) {
	id := ident.Partition{Topic: 1, Number: n}
	s := metadata.PartitionState{V: 1, Leader: "n2", Epoch: 1}
	s.Revision = b.write(b.keys.Partition(id), s)
	return id, s
}

func (b *bench) next() posted {
	b.t.Helper()
	return wait.For(b.t, b.events, "an answer")
}

func (b *bench) election(n uint16, gone ident.Incarnation) (ident.Partition, replica.CAS) {
	id, s := b.partition(n)
	s.Leader, s.Epoch = "n1", 2
	return id, replica.CAS{Token: uint64(n), State: s, LeaderGone: &replica.Peer{Node: "n2", Incarnation: gone}}
}

func TestProposerFencesByTheKeysRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id, s := b.partition(0)
		b.p.Propose(id, replica.CAS{Token: 1, State: s})
		done := b.next().ev.(replica.CASDone)
		require.True(t, done.OK)
		require.Greater(t, done.State.Revision, s.Revision)

		b.p.Propose(id, replica.CAS{Token: 2, State: s}) // at the old revision
		late := b.next().ev.(replica.CASDone)
		require.False(t, late.OK || late.Unknown)
		require.Equal(t, done.State.Revision, late.State.Revision, "the answer tells what is there")
	})
}

func TestProposerDoesNothingWithoutItsOwnRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id, s := b.partition(0)
		_, _, err := b.store.Txn(context.Background(), nil, []metadata.Put{{Key: b.keys.Live("n1"), Delete: true}})
		require.NoError(t, err)
		b.p.Propose(id, replica.CAS{Token: 1, State: s})
		require.False(t, b.next().ev.(replica.CASDone).OK)
		b.run.Store(0)
		b.p.Propose(id, replica.CAS{Token: 2, State: s})
		require.False(t, b.next().ev.(replica.CASDone).OK, "0 must not be compared as absent")
	})
}

func TestElectionNeedsTheOldLeaderGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		r, _ := b.catalog.LiveNode("n2")
		id, c := b.election(0, r.Incarnation)
		b.p.Propose(id, c)
		require.False(t, b.next().ev.(replica.CASDone).OK, "it is alive")

		id, c = b.election(1, r.Incarnation-1)
		b.p.Propose(id, c)
		require.True(t, b.next().ev.(replica.CASDone).OK, "it is another run")

		id, c = b.election(2, r.Incarnation)
		b.write(b.keys.Live("n2"), metadata.NodeState{V: 1, Name: "n2", Transferring: true})
		b.p.Propose(id, c)
		require.True(t, b.next().ev.(replica.CASDone).OK, "it wants to go")
	})
}

func TestTransferNeedsTheTargetsPresentRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		r, _ := b.catalog.LiveNode("n2")
		for n, ago := range []ident.Incarnation{1, 0} {
			id, s := b.partition(uint16(n))
			to := replica.Peer{Node: "n2", Incarnation: r.Incarnation - ago}
			b.p.Propose(id, replica.CAS{Token: 1, State: s, TransferTarget: &to})
			require.Equal(t, ago == 0, b.next().ev.(replica.CASDone).OK)
		}
	})
}

func TestLostAnswerIsNotANo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id, s := b.partition(0)
		b.faulty.lose, b.faulty.mute = true, 1
		b.p.Propose(id, replica.CAS{Token: 1, State: s})
		require.True(t, b.next().ev.(replica.CASDone).Unknown)
		require.Greater(t, b.next().ev.(replica.Meta).State.Revision, s.Revision, "it is read back: it has landed")
	})
}

func TestElectionsOfOneDeathGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		want := map[ident.Partition]bool{}
		var burst []proposal
		for n := range uint16(50) {
			id, c := b.election(n, 1)
			want[id] = true
			burst = append(burst, proposal{id, c})
		}
		burst[7].cas.State.Revision-- // one whose key has moved must not stop the others
		b.p.mu.Lock()
		b.p.mu.queue = burst[1:]
		b.p.mu.Unlock()
		before := b.faulty.txns
		b.p.Propose(burst[0].id, burst[0].cas)
		ok := 0
		for range 50 {
			e := b.next()
			require.True(t, want[e.id], fmt.Sprint(e.id))
			delete(want, e.id)
			if e.ev.(replica.CASDone).OK {
				ok++
			}
		}
		require.Equal(t, 49, ok)
		require.Equal(t, before+2, b.faulty.txns, "one for all, then one for all but the one")
	})
}

func TestChangesOfManyPartitionsGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		const partitions = 300
		var burst []proposal
		for n := range uint16(partitions) {
			id, s := b.partition(n)
			burst = append(burst, proposal{id, replica.CAS{Token: uint64(n), State: s}})
		}
		burst = append(burst, burst[1]) // a machine may propose again before its first proposal was carried out
		b.p.mu.Lock()
		b.p.mu.queue = burst[1:]
		b.p.mu.Unlock()
		before := b.faulty.txns
		b.p.Propose(burst[0].id, burst[0].cas)
		ok := 0
		for range partitions + 1 {
			if b.next().ev.(replica.CASDone).OK {
				ok++
			}
		}
		require.Equal(t, partitions, ok)
		require.LessOrEqual(t, b.faulty.txns-before, 5)
	})
}

func TestManyLostAnswersAreReadTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		const partitions = 300
		b.p.unresolved.mu.Lock()
		for n := range uint16(partitions) {
			id, _ := b.partition(n)
			b.p.unresolved.mu.open[id] = struct{}{}
		}
		b.p.unresolved.mu.Unlock()
		b.p.unresolved.add(ident.Partition{Topic: 1})
		told := map[ident.Partition]bool{}
		for range partitions {
			e := b.next()
			require.Positive(t, e.ev.(replica.Meta).State.Revision)
			told[e.id] = true
		}
		require.Len(t, told, partitions)
		b.faulty.mu.Lock()
		defer b.faulty.mu.Unlock()
		require.Equal(t, (partitions+metadata.MaxTxn-1)/metadata.MaxTxn, b.faulty.reads)
	})
}
