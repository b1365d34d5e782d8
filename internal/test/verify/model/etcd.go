package model

import (
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// etcd is one state of the metadata store: the partition's key, the brokers'
// registrations, the changes that each broker's watch has still to deliver, and
// transactions in progress. It is never changed in place.
type etcd struct {
	state uint32 // of the key
	live  [maxReplicas]ident.Incarnation
	log   []uint32           // changes that some watch has still to deliver
	seen  [maxReplicas]uint8 // how many of them it has delivered
	runs  [maxReplicas]uint8 // registrations so far
	cas   []transaction
}

// change is one change of a watch: a registration, or the key.
type change struct {
	place int // -1: the key
	inc   ident.Incarnation
	state uint32
}

// transaction is a compare-and-swap in progress.
type transaction struct {
	from    int
	inc     ident.Incarnation // of the process that sent it
	cas     uint32
	status  status
	answer  uint32 // state of the key, once it was executed
	awaited bool   // the process that sent it still waits
}

type status uint8

const (
	sent status = iota
	landed
	refused
)

func (e *etcd) clone() *etcd {
	c := *e
	c.log, c.cas = slices.Clone(e.log), slices.Clone(e.cas)
	return &c
}

func (x *Explorer) etcdID(e *etcd) uint32 {
	least := uint8(len(e.log))
	for i := range x.c.Replicas {
		least = min(least, e.seen[i])
	}
	e.log = e.log[least:]
	for i := range x.c.Replicas {
		e.seen[i] -= least
	}
	var c canon
	c.num(uint64(e.state), uint64(len(e.log)))
	for i := range e.live {
		c.num(uint64(e.live[i]), uint64(e.seen[i]), uint64(e.runs[i]))
	}
	for _, id := range e.log {
		c.num(uint64(id))
	}
	for _, t := range e.cas {
		awaited := uint64(0)
		if t.awaited {
			awaited = 1
		}
		c.num(uint64(t.from), uint64(t.inc), uint64(t.cas), uint64(t.status), uint64(t.answer), awaited)
	}
	return x.etcds.id(string(c), e)
}

func (x *Explorer) stateID(s metadata.PartitionState) uint32 {
	var c canon
	c.num(uint64(s.Revision), uint64(s.Epoch), uint64(s.LeaderIncarnation), uint64(placeOf(s.Leader)))
	for _, m := range s.ISR {
		c.num(uint64(placeOf(m.Node)), uint64(m.Store))
	}
	return x.states.id(string(c), s)
}

// transaction numbers what a machine asks for.
func (x *Explorer) transaction(t replica.CAS) uint32 {
	var c canon
	c.num(uint64(x.stateID(t.State)))
	for _, p := range []*replica.Peer{t.LeaderGone, t.TransferTarget} {
		if p == nil {
			c.num(0)
			continue
		}
		c.num(1, uint64(placeOf(p.Node)), uint64(p.Incarnation))
	}
	t.Token = 0
	return x.transactions.id(string(c), t)
}

func (x *Explorer) tell(e *etcd, c change) {
	var k canon
	k.num(uint64(c.place+1), uint64(c.inc), uint64(c.state))
	e.log = append(e.log, x.changes.id(string(k), c))
}

// carryOut lands or refuses a transaction. own is the current incarnation of the
// process that sent it, 0 if that is gone: a proposer compares the registration
// that its process has now.
func (x *Explorer) carryOut(e *etcd, t *transaction, own ident.Incarnation) {
	want, now := x.transactions.at(t.cas), x.states.at(e.state)
	ok := want.State.Revision == now.Revision
	registered := e.live[t.from] != 0 && (e.live[t.from] == t.inc || e.live[t.from] == own)
	ok = ok && registered
	if g := want.LeaderGone; g != nil && e.live[placeOf(g.Node)] == g.Incarnation {
		ok = false
	}
	if h := want.TransferTarget; h != nil && e.live[placeOf(h.Node)] != h.Incarnation {
		ok = false
	}
	t.status = refused
	if ok {
		t.status = landed
		if !t.awaited {
			x.reached.LateLandings++
		}
		s := want.State.Clone()
		s.Revision = now.Revision + 1
		e.state = x.stateID(s)
		x.tell(e, change{place: -1, state: e.state})
	}
	t.answer = e.state
}

// register gives a broker a new registration.
func (x *Explorer) register(e *etcd, place int) {
	e.runs[place]++
	e.live[place] = incarnation(place, e.runs[place])
	x.tell(e, change{place: place, inc: e.live[place]})
}

// ended: the process of a broker is gone. A transaction that it sent may still land.
func (e *etcd) ended(place int) {
	kept := e.cas[:0]
	for _, t := range e.cas {
		if t.from == place {
			t.awaited = false
			if t.status != sent {
				continue
			}
		}
		kept = append(kept, t)
	}
	e.cas = kept
	e.seen[place] = uint8(len(e.log))
}
