package replica

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// This file is the commands of the scripts; testdata/README.md lists them.

func (s *script) cluster() {
	o := options("", 0)
	o.HeldBytes = s.number("held-bytes", o.HeldBytes)
	o.WindowBytes = s.number("window", o.WindowBytes)
	o.TailBytes = s.number("tail", o.TailBytes)
	o.Epochs = s.number("epochs", 0)
	o.Identities = s.number("identities", 0)
	o.DedupeMS = int64(s.number("dedupe-ms", 0))
	n := s.number("replicas", 3)
	s.lab = newLab(n, s.number("min-isr", min(n, 2)), o)
	s.lab.show()
}

func (s *script) show() { s.lab.show() }

// put proposes each word as one put: "a+b" is a multi-put. A body stands for one
// request id, so a body that comes again is a retry.
func (s *script) put() {
	n, bodies := s.first()
	var puts []Put
	for _, body := range bodies {
		parts := strings.Split(body, "+")
		d := queue.NewDraft(len(body))
		for _, p := range parts {
			_ = d.AddMessage(queue.Message{Body: []byte(p)})
		}
		id := slices.Index(s.lab.tickets, body)
		s.lab.tickets = append(s.lab.tickets, body)
		if id < 0 {
			id = len(s.lab.tickets) - 1
		}
		puts = append(puts, Put{
			Ticket: uint64(len(s.lab.tickets) - 1), Draft: d.Draft(ident.RequestID{Producer: 7, N: uint64(id)}),
		})
	}
	s.lab.step(n, Propose{Puts: puts, TimeNS: s.lab.nowMS * 1e6})
}

// publish proposes each word as one put of a producer that tries again: it has a new request id, and
// each message has its body as its id.
func (s *script) publish() { s.identified(func(ticket uint64, _ string) uint64 { return ticket }) }

// repeat proposes each word as the edge repeats it: with the request id of the first such publish.
func (s *script) repeat() {
	s.identified(func(_ uint64, word string) uint64 { return uint64(slices.Index(s.lab.tickets, word)) })
}

// identified proposes each word as one put whose messages have ids. request is its request id.
func (s *script) identified(request func(ticket uint64, word string) uint64) {
	n, words := s.first()
	var puts []Put
	for _, word := range words {
		d := queue.NewDraft(len(word))
		bodies, whole := strings.Split(word, "+"), strings.Contains(word, "*")
		if whole {
			bodies = strings.Split(word, "*")
		}
		for i, body := range bodies {
			body, plain := strings.CutPrefix(body, "-")
			m := queue.Message{Body: []byte(body), Identity: queue.IdentityOf([]byte(body)), IsPutIdentity: whole}
			if plain || whole && i > 0 {
				m.Identity = queue.Identity{}
			}
			if err := d.AddMessage(m); err != nil {
				panic(err)
			}
		}
		s.lab.tickets = append(s.lab.tickets, word)
		ticket := uint64(len(s.lab.tickets) - 1)
		puts = append(puts, Put{Ticket: ticket, Draft: d.Draft(ident.RequestID{Producer: 8, N: request(ticket, word)})})
	}
	s.lab.step(n, Propose{Puts: puts, TimeNS: s.lab.nowMS * 1e6})
}

// low puts a broker below its disk reserve, which all are notified of.
func (s *script) low() {
	n, on := s.flag()
	s.lab.everywhere("", Space{Node: n.name, Low: on})
}

// unreadable damages the batches with identities on the disk of a broker that is down.
func (s *script) unreadable() {
	n, on := s.flag()
	n.disk.unreadable = on
}

// dedupe changes the dedupe window on all brokers.
func (s *script) dedupe() {
	ms, err := strconv.Atoi(s.words()[0])
	if err != nil {
		panic(err)
	}
	s.lab.everywhere("", Dedupe{WindowMS: int64(ms)})
}

// change changes the channels that a broker leads.
func (s *script) change() {
	n, deltas := s.first()
	for _, delta := range deltas {
		if n.view.Role == Leader {
			n.reg.text += delta // the leader's channels apply at once
		}
		s.lab.tickets = append(s.lab.tickets, "change "+delta)
		s.lab.step(n, Change{Delta: []byte(delta), Ticket: uint64(len(s.lab.tickets) - 1)})
	}
}

func (s *script) transfer() {
	n, _ := s.first()
	to, _ := s.value("to")
	s.lab.step(n, TransferLeadership{To: ident.Node(to)})
}

func (s *script) sync() {
	for _, n := range s.brokers() {
		s.lab.sync(n, s.number("submissions", -1))
	}
}

func (s *script) deliver() { s.lab.deliver(s.matching()) }

// drop loses the messages that match.
func (s *script) drop() { s.lab.wire = slices.DeleteFunc(s.lab.wire, s.matching()) }

func (s *script) read() {
	for _, n := range s.brokers() {
		s.lab.answerReads(n)
	}
}

func (s *script) tick() {
	s.lab.nowMS += s.duration()
	s.lab.tick(s.lab.nodes...)
}

func (s *script) pass()   { s.lab.pass(s.duration()) }
func (s *script) settle() { s.lab.settle() }
func (s *script) decide() { s.lab.decide() }

// loseAnswer carries the transaction out, and loses its answer.
func (s *script) loseAnswer() {
	x := s.lab.asked[0]
	s.lab.asked = s.lab.asked[1:]
	s.lab.land(x)
	s.lab.step(x.by, CASDone{Token: x.cas.Token, Unknown: true})
}

// delay loses the answer of a transaction that has not been carried out: it may land
// later.
func (s *script) delay() {
	x := s.lab.asked[0]
	s.lab.asked, s.lab.late = s.lab.asked[1:], append(s.lab.late, x)
	s.lab.step(x.by, CASDone{Token: x.cas.Token, Unknown: true})
}

// land tries the oldest delayed transaction.
func (s *script) land() {
	x := s.lab.late[0]
	s.lab.late = s.lab.late[1:]
	s.lab.land(x)
}

func (s *script) watch() { s.lab.watch(s.brokers()...) }

// etcd takes the metadata store away, or brings it back.
func (s *script) etcd() {
	s.lab.down = s.words()[0] == "down"
	if !s.lab.down {
		s.lab.watch(s.lab.nodes...)
	}
}

// edit changes the key as an operator or the controller does.
func (s *script) edit() {
	s.lab.key.Revision++
	s.lab.watch(s.lab.nodes...)
}

func (s *script) minISR() {
	n, err := strconv.Atoi(s.words()[0])
	if err != nil {
		panic(err)
	}
	if len(s.lab.key.ISR) < n { // as the controller's transaction compares
		fmt.Fprintf(&s.lab.out, "refused: the ISR has %d members\n", len(s.lab.key.ISR))
		return
	}
	s.lab.key.MinInSync = n
	fmt.Fprintf(&s.lab.out, "the minimum is now %d\n", n)
	s.edit()
}

func (s *script) replicas() {
	s.lab.key = s.lab.key.Clone()
	s.lab.key.Replicas = nil
	for _, w := range s.words() {
		s.lab.key.Replicas = append(s.lab.key.Replicas, ident.Node(w))
	}
	s.edit()
}

// recover is the operator, who continues with one replica alone: the others were lost.
func (s *script) recover() {
	n, _ := s.first()
	s.lab.key = s.lab.key.Clone()
	s.lab.key.ISR, s.lab.key.MinInSync = []ident.Member{{Node: n.name, Store: n.store}}, 1
	s.lab.key.Abandoned = s.lab.key.Epoch
	fmt.Fprintf(&s.lab.out, "%s is alone in sync, epochs up to %d are abandoned\n", n.name, s.lab.key.Abandoned)
	s.edit()
}

func (s *script) stall() {
	n, on := s.flag()
	n.stalled = on
}

// cut loses all messages between a broker and the others. No machine is notified.
func (s *script) cut() {
	n, on := s.flag()
	n.cut = on
	if on {
		s.lab.wire = slices.DeleteFunc(s.lab.wire, func(x labMessage) bool { return x.from == n || x.to == n })
	}
}

// isolate cuts the links between a broker and the others. It reaches the metadata store.
func (s *script) isolate() {
	n, on := s.flag()
	n.alone = on
}

// down reports to the others that a broker does not answer, and to it that they do
// not.
func (s *script) down() {
	n, rest := s.first()
	dead := len(rest) > 0 && rest[0] == "dead"
	s.lab.everywhere(n.name, PeerState{Node: n.name, Dead: dead})
	for _, p := range s.lab.nodes {
		if p != n && !dead {
			s.lab.step(n, PeerState{Node: p.name})
		}
	}
}

func (s *script) up() {
	n, _ := s.first()
	s.lab.everywhere(n.name, PeerState{Node: n.name, Up: true})
	for _, p := range s.lab.nodes {
		s.lab.step(n, PeerState{Node: p.name, Up: p.m != nil && (p == n || joined(n, p))})
	}
}

func (s *script) crash() {
	for _, n := range s.brokers() {
		s.lab.crash(n)
	}
}

// wipe replaces a broker's store that is down by an empty one.
func (s *script) wipe() {
	n, _ := s.first()
	n.disk, n.written = labDisk{}, labDisk{}
	n.store += 100
}

// start starts a broker that crashed: it registers as a new process.
func (s *script) start() {
	for _, n := range s.brokers() {
		s.lab.live[n.name] += 100
		s.lab.start(n)
		s.lab.everywhere(n.name, Live{Node: n.name, Incarnation: s.lab.live[n.name]})
		s.lab.everywhere(n.name, PeerState{Node: n.name, Up: true})
	}
}

func (s *script) unregister() {
	n, _ := s.first()
	s.lab.live[n.name] = 0
	s.lab.reportLive(n.name)
}

// kill ends a broker's process, and all others are notified at once.
func (s *script) kill() {
	n, _ := s.first()
	s.lab.crash(n)
	s.lab.everywhere(n.name, PeerState{Node: n.name, Dead: true})
	s.unregister()
}

// register registers a process again that lost its registration.
func (s *script) register() {
	n, _ := s.first()
	s.lab.live[n.name] = ident.Incarnation(10*n.number + 501)
	s.lab.reportLive(n.name)
}

// trim lets retention remove everything before a batch.
func (s *script) trim() {
	n, _ := s.first()
	before, _ := s.value("before")
	for _, d := range []*labDisk{&n.disk, &n.written} {
		i := slices.IndexFunc(d.batches, func(b queue.Batch) bool { return s.lab.names[b.CRC] == before })
		d.start, d.startCRC = d.batches[i].At, d.batches[i].PrevCRC
		d.batches = slices.Clone(d.batches[i:])
	}
	if err := n.index.TrimHead(n.written.start); err != nil {
		panic(err)
	}
	n.m.log.tail.drop()
}

func (s *script) diskError() {
	n, _ := s.first()
	token := n.unsync[0].token
	n.unsync = nil
	s.lab.step(n, Synced{Token: token, Err: errors.New("the disk failed")})
}

// partitioned prints how each broker judges a leader that calls others unreachable.
func (s *script) partitioned() {
	leader, rest := s.first()
	var unreachable []ident.Node
	for _, w := range rest {
		unreachable = append(unreachable, ident.Node(w))
	}
	s.lab.taken[leader.name] = true
	for _, n := range s.lab.nodes {
		if n == leader {
			continue
		}
		up := func(p ident.Node) bool { x := s.lab.node(p); return x == n || joined(n, x) }
		if !Partitioned(s.lab.key, unreachable, up) {
			fmt.Fprintf(&s.lab.out, "%s leaves the leadership to %s\n", n.name, leader.name)
			continue
		}
		fmt.Fprintf(&s.lab.out, "%s reports %s to its machine as gone\n", n.name, leader.name)
		s.lab.step(n, Live{Node: leader.name})
	}
}

// resend puts the newest message that matches on the wire once more: the network
// doubles it, or it was late. With `earlier` it is one of an earlier process.
func (s *script) resend() {
	match := s.matching()
	for i := len(s.lab.sent) - 1; i >= 0; i-- {
		x := s.lab.sent[i]
		if match(x) && (!s.d.HasArg("earlier") || x.peer.Incarnation < s.lab.live[x.from.name]) {
			s.lab.wire = append(s.lab.wire, s.lab.sent[i])
			return
		}
	}
	panic("nothing like that was sent")
}

// forge delivers a message that no machine of the script sent: an append of another
// history behind the batch after=, or an acknowledgement one byte beyond the end.
func (s *script) forge() {
	fromName, _ := s.value("from")
	toName, _ := s.value("to")
	from, to := s.lab.node(ident.Node(fromName)), s.lab.node(ident.Node(toName))
	peer := Peer{Node: from.name, Incarnation: s.lab.live[from.name], Store: from.store}
	msg := Message{Epoch: ident.Epoch(s.number("epoch", int(to.view.Epoch))), To: to.store, Store: from.store}
	if kind, _ := s.value("kind"); kind == "ack" {
		msg.Kind, msg.Durable, msg.StateVersion = MsgAppendAck, to.m.log.end, 1
		msg.Durable.Offset++
		s.lab.step(to, Received{From: peer, Msg: msg})
		return
	}
	after, _ := s.value("after")
	i := slices.IndexFunc(to.written.batches, func(b queue.Batch) bool { return s.lab.names[b.CRC] == after })
	prev := to.written.batches[i]
	d := queue.NewDraft(8)
	_ = d.AddMessage(queue.Message{Body: []byte("another")})
	draft := d.Draft(ident.RequestID{})
	msg.Kind, msg.Prev, msg.PrevCRC = MsgAppend, prev.End, prev.CRC
	if s.d.HasArg("broken-chain") {
		msg.Batches = []queue.Batch{draft.Seal(prev.End, msg.Epoch, prev.CRC+1, 1)}
	} else {
		msg.Batches = []queue.Batch{draft.Seal(prev.End, msg.Epoch, prev.CRC, 1)}
	}
	s.lab.step(to, Received{From: peer, Msg: msg})
}
