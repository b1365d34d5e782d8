package sim

import (
	"fmt"
	"strings"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

var outcomeText = [...]string{"", "committed", "duplicate", "not leader", "not enough replicas", "rolled back", "in doubt", "topic full", "disk full", "published before", "below the window", "window full"}

// stateText prints a partition's key on one line.
type stateText struct{ s metadata.PartitionState }

// String implements fmt.Stringer.
func (t stateText) String() string {
	var isr []string
	for _, m := range t.s.ISR {
		isr = append(isr, fmt.Sprintf("%s:%x", m.Node, uint64(m.Store)&0xffff))
	}
	return fmt.Sprintf("revision %d: epoch %d leader %s/%d ISR %v of %v",
		t.s.Revision, t.s.Epoch, t.s.Leader, t.s.LeaderIncarnation, isr, t.s.Replicas)
}

func (w *world) noteEvent(h *host, ev replica.Event) {
	text := ""
	switch ev := ev.(type) {
	case replica.Tick:
		return
	case replica.Propose:
		if h.state.Role != replica.Leader && h.state.Role != replica.Electing {
			return // refused: producers ask all nodes
		}
		text = fmt.Sprintf("%d puts, first request %v", len(ev.Puts), ev.Puts[0].Draft.Request)
	case replica.Change:
		text = "a change of the channel state"
	case replica.Received:
		text = fmt.Sprintf("from %s/%d: %s", ev.From.Node, ev.From.Incarnation, messageText(ev.Msg))
	case replica.Synced:
		text = fmt.Sprintf("token %d %v", ev.Token, ev.Err)
	case replica.Read:
		text = fmt.Sprintf("token %d: %d batches %v", ev.Token, len(ev.Batches), ev.Err)
	case replica.Meta:
		text = stateText{ev.State}.String()
	case replica.CASDone:
		text = fmt.Sprintf("token %d ok %v unknown %v, %s", ev.Token, ev.OK, ev.Unknown, stateText{ev.State})
	default:
		text = fmt.Sprintf("%+v", ev)
	}
	w.note(string(h.n.name), h.part, "> %T %s", ev, text)
}

func (w *world) noteEffects(h *host, v replica.View, had effectsSeen) {
	name := string(h.n.name)
	for _, x := range h.out.Write[had.write:] {
		w.note(name, h.part, "  write %s (token %d)", writeText(x), h.out.Token)
	}
	for _, e := range h.out.Send[had.send:] {
		w.note(name, h.part, "  send to %s: %s", e.To, messageText(e.Msg))
	}
	for _, r := range h.out.Read[had.read:] {
		w.note(name, h.part, "  read from %d", r.From)
	}
	if c := h.out.CAS; c != had.cas {
		w.note(name, h.part, "  compare-and-swap %d: %s", c.Token, stateText{c.State})
	}
	for _, c := range h.out.Done[had.done:] {
		if c.Outcome == outcome.NotLeader {
			continue
		}
		w.note(name, h.part, "  answer ticket %d: %s at %d", c.Ticket, outcomeText[c.Outcome], c.First)
	}
	if o := h.state; o.Role != v.Role || o.Epoch != v.Epoch || o.Committed != v.Committed {
		w.note(name, h.part, "  = %s of epoch %d, committed %d, end %d", v.Role, v.Epoch, v.Committed.Offset, v.End.Offset)
	}
}

func messageText(m replica.Message) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s epoch %d", [...]string{"?", "append", "ack", "confirm", "probe", "probe reply"}[m.Kind], m.Epoch)
	switch m.Kind {
	case replica.MsgAppend:
		fmt.Fprintf(&b, " prev %d/%08x committed %d, %d batches", m.Prev.Offset, m.PrevCRC, m.Committed.Offset, len(m.Batches))
		if n := len(m.Batches); n > 0 {
			fmt.Fprintf(&b, " to %d", m.Batches[n-1].End.Offset)
		}
	case replica.MsgAppendAck:
		fmt.Fprintf(&b, " durable %d confirm %d", m.Durable.Offset, m.StateVersion)
	case replica.MsgProbeReply:
		fmt.Fprintf(&b, " last epoch %d durable %d", m.LastEpoch, m.Durable.Offset)
	}
	if m.State.N != 0 {
		fmt.Fprintf(&b, " confirm (%d, %d) full %v", m.State.Epoch, m.State.N, m.State.Full)
	}
	if m.Reject {
		fmt.Fprintf(&b, " REJECT %v", m.Epochs)
	}
	if m.NeedSnapshot {
		b.WriteString(" NEED FULL")
	}
	if m.Restart {
		b.WriteString(" RESTART")
	}
	return b.String()
}

func writeText(x queue.Write) string {
	kind := [...]string{"?", "append", "epoch", "reset", "truncate", "confirm", "committed", "restart", "identities"}[x.Kind]
	text := fmt.Sprintf("%s epoch %d at %d", kind, x.Epoch, x.At.Offset)
	for _, b := range x.Batches {
		text += fmt.Sprintf(" [%d,%d) e%d crc %08x %v", b.At.Offset, b.End.Offset, b.Epoch, b.CRC, b.Request)
	}
	if x.Kind == queue.WriteState {
		text = fmt.Sprintf("confirm (%d, %d) full %v", x.State.Epoch, x.State.N, x.State.Full)
	}
	return text
}
