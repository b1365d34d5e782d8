package replica

import (
	"fmt"
	"testing"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// noIndex forgets every record: replicas that keep up look nothing up.
type noIndex struct{}

func (noIndex) Append(...commitlog.Record)                     {}
func (noIndex) Truncate(ident.Offset)                          {}
func (noIndex) Restart(ident.Position)                         {}
func (noIndex) Start() ident.Position                          { return ident.Position{} }
func (noIndex) AtOffset(ident.Offset) (commitlog.Record, bool) { return commitlog.Record{}, false }

// benchReplica is one machine with the effects of its last Step.
type benchReplica struct {
	m   *Machine
	out Effects
}

func (r *benchReplica) step(ev Event) {
	r.out.Reset()
	r.m.Step(ev, &r.out)
}

// benchCluster is a leader, first in the list, and its followers. Disks sync at
// once, messages arrive at once.
type benchCluster []*benchReplica

func newBenchCluster(b *testing.B, n int) benchCluster {
	s := metadata.PartitionState{V: 1, MinInSync: n, Leader: "n1", LeaderIncarnation: 1, Epoch: 1, Revision: 1}
	for i := 1; i <= n; i++ {
		name := ident.Node(fmt.Sprint("n", i))
		s.Replicas = append(s.Replicas, name)
		s.ISR = append(s.ISR, ident.Member{Node: name, Store: ident.StoreID(100 + i)})
	}
	var c benchCluster
	for i, name := range s.Replicas {
		o := options(name, i+1)
		o.Check = false
		r := &benchReplica{m: New(queue.Restored{}, noIndex{}, &listRegister{}, o)}
		r.step(Tick{NowMS: 1000})
		for k, peer := range s.Replicas {
			r.step(Live{Node: peer, Incarnation: ident.Incarnation(k + 1)})
			r.step(PeerState{Node: peer, Up: true})
		}
		c = append(c, r)
	}
	for i := len(c) - 1; i >= 0; i-- {
		c[i].step(Meta{State: s})
	}
	for range 10 {
		c.carryOut()
		c[0].step(Tick{NowMS: c[0].m.nowMS + 100})
	}
	if !c[0].m.Idle() {
		b.Fatal("the cluster does not come to rest")
	}
	return c
}

// carryOut syncs the leader's disk, takes its messages to the followers, and
// their answers back.
func (c benchCluster) carryOut() (answered int) {
	leader := c[0]
	token, sends := leader.out.Token, append([]Envelope(nil), leader.out.Send...)
	if token != 0 {
		leader.step(Synced{Token: token})
		sends = append(sends, leader.out.Send...)
		answered += len(leader.out.Done)
	}
	for _, e := range sends {
		f := c[e.To[1]-'1']
		f.step(Received{From: leader.m.self, Msg: e.Msg})
		if f.out.Token != 0 {
			f.step(Synced{Token: f.out.Token})
		}
		for i := range f.out.Send {
			leader.step(Received{From: f.m.self, Msg: f.out.Send[i].Msg})
			answered += len(leader.out.Done)
		}
	}
	return answered
}

// BenchmarkPut measures a put through all machines of a partition: the leader's append,
// the followers', their acknowledgements and the answer. A group is the puts that arrive
// within one pass of the loop.
func BenchmarkPut(b *testing.B) {
	for _, replicas := range []int{1, 3} {
		for _, group := range []int{1, 64} {
			b.Run(fmt.Sprintf("replicas=%d/group=%d", replicas, group), func(b *testing.B) { benchmarkPuts(b, replicas, group) })
		}
	}
}

func benchmarkPuts(b *testing.B, replicas, group int) {
	c := newBenchCluster(b, replicas)
	d := queue.NewDraft(100)
	_ = d.AddMessage(queue.Message{Body: make([]byte, 100)})
	master := d.Draft(ident.RequestID{})
	puts, drafts := make([]Put, group), make([]queue.Draft, group)
	n := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		for i := range puts {
			n++
			drafts[i] = master.Clone()
			drafts[i].Request = ident.RequestID{Producer: 1, N: n}
			puts[i] = Put{Draft: drafts[i], Ticket: n}
		}
		c[0].step(Propose{Puts: puts, TimeNS: int64(n)})
		if answered := c.carryOut(); answered != group {
			b.Fatalf("%d of %d puts answered", answered, group)
		}
	}
}
