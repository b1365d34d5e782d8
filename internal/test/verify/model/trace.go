package model

import (
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/coordinator/replica"
)

// trace prints the shortest way to a state, and the action that failed there.
func (x *Explorer) trace(first world, last uint32, failed action) []string {
	steps := []action{failed}
	for n := last; n != 0; n = x.parents[n] {
		steps = append(steps, x.via[n])
	}
	slices.Reverse(steps)
	var lines []string
	w := first
	for _, a := range steps {
		lines = append(lines, x.describe(&w, a))
		w, _, _ = x.next(w, a)
	}
	return lines
}

var kindNames = [...]string{
	doSync: "syncs", doWatch: "is told by its watch", doDeliver: "receives", doDouble: "receives, and will again,",
	doLose: "loses", doTick: "waits", doPut: "is asked to put", doChange: "changes its channels", doSuspect: "finds dead",
	doTrust: "hears", doHandOver: "is told to hand over", doCrash: "crashes", doWipe: "loses its store",
	doRestore: "crashes and has an earlier store", doStart: "starts", doExpire: "loses its registration",
	doRegister: "registers", doCarryOut: "has a transaction carried out", doAnswer: "is answered by the metadata store",
	doUnknown: "hears that the fate of its transaction is unknown",
}

func (x *Explorer) describe(w *world, a action) string {
	s := fmt.Sprintf("%s %s", names[a.node], kindNames[a.kind])
	switch a.kind {
	case doDeliver, doDouble, doLose:
		e := x.envelopes.at(w.links[link(int(a.a), int(a.node))][a.b])
		s += " " + messageText(e)
	case doWatch:
		e := x.etcds.at(w.etcd)
		c := x.changes.at(e.log[e.seen[a.node]])
		if c.place >= 0 {
			s += fmt.Sprintf(": %s is registered as %d", names[c.place], c.inc)
		} else {
			s += ": " + x.stateText(c.state)
		}
	case doCarryOut:
		e := x.etcds.at(w.etcd)
		t := x.transactions.at(e.cas[a.a].cas)
		s += ": " + x.stateText(x.stateID(t.State)) + " over " + x.stateText(e.state)
	case doPut:
		s += fmt.Sprintf(" request %d", a.a+1)
	case doSuspect, doTrust, doHandOver:
		s += " " + string(names[a.a])
	case doCrash, doRestore:
		s += fmt.Sprintf(", %d kept", a.a)
	}
	n := x.nodes.at(w.nodes[a.node])
	if !n.running {
		return s
	}
	return fmt.Sprintf("%-100s [%s, epoch %d, end %d, durable %d, committed %d]", s, n.view.Role, n.view.Epoch,
		n.view.End.Offset, endOf(n.disk.batches).Offset, n.view.Committed.Offset)
}

func messageText(e envelope) string {
	m := &e.msg
	switch m.Kind {
	case replica.MsgAppend:
		return fmt.Sprintf("append of %s, epoch %d, %d batches after %d, committed %d", e.from.Node, m.Epoch, len(m.Batches), m.Prev.Offset, m.Committed.Offset)
	case replica.MsgAppendAck:
		if m.Reject {
			return fmt.Sprintf("rejection of %s, epoch %d", e.from.Node, m.Epoch)
		}
		return fmt.Sprintf("ack of %s, epoch %d, durable %d, confirm %d", e.from.Node, m.Epoch, m.Durable.Offset, m.StateVersion)
	case replica.MsgChannelState:
		return fmt.Sprintf("confirm of %s, version (%d, %d)", e.from.Node, m.State.Epoch, m.State.N)
	default:
		return fmt.Sprintf("message %d of %s", m.Kind, e.from.Node)
	}
}

func (x *Explorer) stateText(id uint32) string {
	s := x.states.at(id)
	text := fmt.Sprintf("{r%d, epoch %d, %s/%d, isr", s.Revision, s.Epoch, s.Leader, s.LeaderIncarnation)
	for _, m := range s.ISR {
		text += fmt.Sprintf(" %s/%d", m.Node, m.Store)
	}
	return text + "}"
}
