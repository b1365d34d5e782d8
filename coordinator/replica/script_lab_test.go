package replica

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/lockstepmq/lockstep/commitlog"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// lab is the cluster of a script: machines, disks that sync on request, links that
// deliver on request, and a metadata store. A script moves
// every part by itself, or lets all of them run (settle, pass).
type lab struct {
	nodes []*labNode
	wire  []labMessage
	sent  []labMessage // everything that ever was on the wire
	key   metadata.PartitionState
	live  map[ident.Node]ident.Incarnation
	asked []labCAS            // transactions on their way to the metadata store
	late  []labCAS            // whose answer was lost, and which may still land
	taken map[ident.Node]bool // living leaders that may be replaced: they say so in the metadata store
	down  bool                // the metadata store answers nobody
	nowMS int64

	names   map[uint32]string // of batches, by their checksums
	tickets []string          // the name of each put or change; its index is the ticket
	quiet   bool              // print reports alone
	stamp   int64             // begin of the wait whose reports are printed; 0: none
	out     strings.Builder
}

// labNode is one broker.
type labNode struct {
	name    ident.Node
	number  int
	store   ident.StoreID
	written labDisk // everything written, durable or not
	disk    labDisk // the durable part, which a crash leaves
	unsync  []labSubmission
	stalled bool // the disk does not sync
	cut     bool // every link is cut, and the one to the metadata store
	alone   bool // the links to the other brokers are cut
	reads   []ReadRequest
	options Options

	m        *Machine // nil: not running
	index    *commitlog.Log
	reg      *listRegister
	view     View
	stopping uint64 // View.Stopping that was answered
}

type labSubmission struct {
	token  uint64
	writes []queue.Write
}

type labMessage struct {
	from, to *labNode
	peer     Peer
	msg      Message
}

type labCAS struct {
	by  *labNode
	inc ident.Incarnation
	cas CAS
}

// start runs a broker's process, and introduces it.
func (l *lab) start(n *labNode) {
	o := n.options
	o.Self = Peer{Node: n.name, Incarnation: l.live[n.name], Store: n.store}
	n.index, n.reg = new(commitlog.Log), &listRegister{}
	n.index.Restart(n.disk.start)
	r := n.disk.restored(n.index)
	Replay(n.reg, n.disk.states)
	n.written, n.unsync, n.reads = n.disk.clone(), nil, nil
	n.m = New(r, n.index, n.reg, o)
	n.view = n.m.View()
	l.step(n, Tick{NowMS: l.nowMS})
	for _, p := range l.nodes {
		l.step(n, Live{Node: p.name, Incarnation: l.live[p.name]})
		l.step(n, PeerState{Node: p.name, Up: p.m != nil && (p == n || joined(n, p))})
	}
	if l.key.Revision != 0 && !n.cut {
		l.step(n, Meta{State: l.key})
	}
}

// crash ends a broker's process. Unsynced writes are lost, and its messages on the wire.
func (l *lab) crash(n *labNode) {
	n.m, n.unsync, n.reads = nil, nil, nil
	n.written = n.disk.clone()
	l.wire = slices.DeleteFunc(l.wire, func(x labMessage) bool { return x.from == n || x.to == n })
	l.asked = slices.DeleteFunc(l.asked, func(x labCAS) bool { return x.by == n })
}

// step feeds one event to a machine and takes its effects.
func (l *lab) step(n *labNode, ev Event) {
	if n.m == nil {
		return
	}
	var out Effects
	n.m.Step(ev, &out)
	for _, w := range out.Write {
		l.register(w.Batches)
		l.sayWrite(n, w)
		n.written.apply(w)
	}
	if out.Token != 0 {
		n.unsync = append(n.unsync, labSubmission{out.Token, out.Write})
	}
	l.sayView(n)
	for _, e := range out.Send {
		to := l.node(e.To)
		e.Msg.Epochs = slices.Clone(e.Msg.Epochs)
		l.saySend(n, to, e)
		if joined(n, to) {
			l.wire = append(l.wire, labMessage{n, to, n.m.self, e.Msg})
			l.sent = append(l.sent, labMessage{n, to, n.m.self, e.Msg})
		}
	}
	for _, r := range out.Read {
		l.say(n, "%s reads its files after %s", n.name, n.positionName(l, ident.Position{Offset: r.From}))
		n.reads = append(n.reads, r)
	}
	if out.CAS != nil {
		l.sayCAS(n, *out.CAS)
		l.asked = append(l.asked, labCAS{n, n.m.self.Incarnation, *out.CAS})
	}
	l.sayAnswers(n, out)
	if s := n.m.View().Stopping; s != n.stopping {
		if n.stopping = s; s != 0 {
			l.step(n, ChannelsStopped{Number: s})
		}
	}
}

// joined reports whether a message gets from one broker to another.
func joined(a, b *labNode) bool {
	return a.m != nil && b.m != nil && !a.cut && !a.alone && !b.cut && !b.alone
}

// sync makes a broker's oldest submissions durable; n < 0: all.
func (l *lab) sync(b *labNode, n int) (moved bool) {
	for len(b.unsync) > 0 && n != 0 {
		s := b.unsync[0]
		b.unsync = b.unsync[1:]
		for _, w := range s.writes {
			b.disk.apply(w)
		}
		l.step(b, Synced{Token: s.token})
		n, moved = n-1, true
	}
	return moved
}

// deliver delivers the messages that are on the wire now and match.
func (l *lab) deliver(match func(labMessage) bool) (moved bool) {
	wire := l.wire
	l.wire = nil
	var kept []labMessage
	for _, x := range wire {
		if !match(x) {
			kept = append(kept, x)
			continue
		}
		moved = true
		if joined(x.from, x.to) {
			l.step(x.to, Received{From: x.peer, Msg: x.msg})
		}
	}
	l.wire = append(kept, l.wire...)
	return moved
}

// answerReads answers a broker's reads from what it has written.
func (l *lab) answerReads(n *labNode) (moved bool) {
	for len(n.reads) > 0 {
		r := n.reads[0]
		n.reads = n.reads[1:]
		i := slices.IndexFunc(n.written.batches, func(b queue.Batch) bool { return b.At.Offset >= r.From })
		if i < 0 {
			i = len(n.written.batches)
		}
		l.step(n, Read{Token: r.Token, Batches: slices.Clone(n.written.batches[i:])})
		moved = true
	}
	return moved
}

// land tries a transaction, and reports whether it landed. No broker is notified.
func (l *lab) land(x labCAS) bool {
	gone := func(p *Peer) bool { return p == nil || l.live[p.Node] != p.Incarnation || l.taken[p.Node] }
	there := func(p *Peer) bool { return p == nil || l.live[p.Node] == p.Incarnation }
	if x.cas.State.Revision != l.key.Revision || !gone(x.cas.LeaderGone) || !there(x.cas.TransferTarget) || l.live[x.by.name] != x.inc {
		l.report(x.by, "the metadata store refuses %s's proposal: the key is at revision %d", x.by.name, l.key.Revision)
		return false
	}
	l.key = x.cas.State.Clone()
	l.key.Revision = x.cas.State.Revision + 1
	l.report(x.by, "the key is now %s", l.keyText(l.key))
	return true
}

// decide carries the transactions out, answers them and notifies everybody.
func (l *lab) decide() (moved bool) {
	for len(l.asked) > 0 {
		x := l.asked[0]
		l.asked, moved = l.asked[1:], true
		if l.down || x.by.cut {
			l.late = append(l.late, x)
			l.step(x.by, CASDone{Token: x.cas.Token, Unknown: true})
			continue
		}
		ok := l.land(x)
		l.step(x.by, CASDone{Token: x.cas.Token, OK: ok, State: l.key})
		l.watch(l.nodes...)
	}
	return moved
}

// watch notifies brokers of the key.
func (l *lab) watch(nodes ...*labNode) {
	for _, n := range nodes {
		if !n.cut && !l.down {
			l.step(n, Meta{State: l.key})
		}
	}
}

// settle lets disks, links and the metadata store work until nothing moves.
func (l *lab) settle() {
	for round := 0; ; round++ {
		if round > 10_000 {
			panic("the cluster does not come to rest")
		}
		moved := false
		for _, n := range l.nodes {
			if !n.stalled {
				moved = l.sync(n, -1) || moved
			}
			moved = l.answerReads(n) || moved
		}
		moved = l.deliver(func(labMessage) bool { return true }) || moved
		if moved = l.decide() || moved; !moved {
			return
		}
	}
}

// pass lets time go by in ticks of 10 ms, and everything work.
func (l *lab) pass(ms int64) {
	l.stamp = l.nowMS
	for end := l.nowMS + ms; l.nowMS < end; l.settle() {
		l.nowMS += 10
		l.tick(l.nodes...)
	}
	l.stamp = 0
}

func (l *lab) tick(nodes ...*labNode) {
	for _, n := range nodes {
		l.step(n, Tick{NowMS: l.nowMS})
	}
}

// everywhere reports an event to all brokers but one.
func (l *lab) everywhere(but ident.Node, ev Event) {
	for _, n := range l.nodes {
		if n.name != but {
			l.step(n, ev)
		}
	}
}

// reportLive reports a broker's registration to all that reach the metadata store.
func (l *lab) reportLive(name ident.Node) {
	for _, n := range l.nodes {
		if !n.cut && !l.down {
			l.step(n, Live{Node: name, Incarnation: l.live[name]})
		}
	}
}

func (l *lab) node(name ident.Node) *labNode {
	i := slices.IndexFunc(l.nodes, func(n *labNode) bool { return n.name == name })
	if i < 0 {
		panic(fmt.Sprintf("no broker %q", name))
	}
	return l.nodes[i]
}

// newLab makes brokers and their partition, led by n1, and waits until it is at rest.
func newLab(n, minISR int, o Options) *lab {
	l := &lab{live: map[ident.Node]ident.Incarnation{}, taken: map[ident.Node]bool{}, names: map[uint32]string{}, tickets: []string{""}, nowMS: 1000, quiet: true}
	s := metadata.PartitionState{V: 1, MinInSync: minISR, Leader: "n1", LeaderIncarnation: 11, Epoch: 1, Revision: 1}
	for i := 1; i <= n; i++ {
		b := &labNode{name: ident.Node(fmt.Sprint("n", i)), number: i, store: ident.StoreID(100 + i), options: o}
		l.nodes = append(l.nodes, b)
		l.live[b.name] = ident.Incarnation(10*i + 1)
		s.Replicas = append(s.Replicas, b.name)
		s.ISR = append(s.ISR, ident.Member{Node: b.name, Store: b.store})
	}
	for _, b := range l.nodes {
		l.start(b)
	}
	l.everywhere("", Tick{NowMS: l.nowMS})
	for _, b := range l.nodes {
		l.everywhere(b.name, PeerState{Node: b.name, Up: true})
	}
	l.key = s
	l.watch(l.nodes...)
	l.pass(500)
	l.out.Reset()
	return l
}

// checkCommitted panics if two brokers have different batches below both committed ends.
func (l *lab) checkCommitted() {
	var longest []queue.Batch
	for _, n := range l.nodes {
		if n.m == nil {
			continue
		}
		c := slices.DeleteFunc(slices.Clone(n.written.batches), func(b queue.Batch) bool { return b.End.Offset > n.view.Committed.Offset })
		for _, b := range c {
			i, ok := slices.BinarySearchFunc(longest, b, func(x, y queue.Batch) int { return cmp.Compare(x.At.Offset, y.At.Offset) })
			if ok && longest[i].CRC != b.CRC {
				panic(fmt.Sprintf("%s calls %s committed, another broker %s", n.name, l.names[b.CRC], l.names[longest[i].CRC]))
			}
		}
		if len(c) > 0 && (len(longest) == 0 || c[len(c)-1].End.Offset > longest[len(longest)-1].End.Offset) {
			longest = c
		}
	}
}
