package replica

import (
	"errors"
	"fmt"
	"strings"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// This file prints the effects of the machines of a script. A batch is called by its bodies,
// a marker M and its epoch; a position by the batch that ends there.

// register names batches.
func (l *lab) register(bs []queue.Batch) {
	for _, b := range bs {
		if b.Control == queue.ControlMarker {
			l.names[b.CRC] = fmt.Sprint("M", b.Epoch)
			continue
		}
		var bodies []string
		for _, m := range b.Messages(0, 1<<20, nil) {
			bodies = append(bodies, string(m.Body))
		}
		l.names[b.CRC] = strings.Join(bodies, "+")
	}
}

func (l *lab) list(bs []queue.Batch) string {
	var names []string
	for _, b := range bs {
		names = append(names, l.names[b.CRC])
	}
	return strings.Join(names, " ")
}

// positionName is the batch that ends at p in a broker's log.
func (n *labNode) positionName(l *lab, p ident.Position) string {
	for _, b := range n.written.batches {
		if b.End.Offset == p.Offset {
			return l.names[b.CRC]
		}
	}
	switch {
	case p.Offset == 0:
		return "the beginning"
	case p.Offset == n.written.start.Offset:
		return "the first retained place"
	default:
		return fmt.Sprintf("%d bytes", p.Offset)
	}
}

// say prints one line in a script that shows every step.
func (l *lab) say(n *labNode, format string, args ...any) {
	if !l.quiet {
		fmt.Fprintf(&l.out, format+"\n", args...)
	}
}

// report prints one line in any case; during a wait with the time that has passed.
func (l *lab) report(n *labNode, format string, args ...any) {
	if l.stamp != 0 {
		fmt.Fprintf(&l.out, "+%d ms: ", l.nowMS-l.stamp)
	}
	fmt.Fprintf(&l.out, format+"\n", args...)
}

func (l *lab) sayWrite(n *labNode, w queue.Write) {
	switch w.Kind {
	case queue.WriteAppend:
		l.say(n, "%s writes %s", n.name, l.list(w.Batches))
	case queue.WriteEpoch:
		l.say(n, "%s promises epoch %d", n.name, w.Epoch)
	case queue.WriteReset:
		l.report(n, "%s opens epoch %d in one record: %s%s", n.name, w.Epoch, l.cutText(n, w.At), l.list(w.Batches))
	case queue.WriteTruncate:
		l.report(n, "%s cuts %s", n.name, l.list(n.above(w.At)))
	case queue.WriteState:
		l.say(n, "%s writes channel state %s", n.name, stateText(w.State))
	case queue.WriteCommitted:
		l.say(n, "%s notes that %s is committed", n.name, n.positionName(l, w.At))
	case queue.WriteIdentities:
		l.say(n, "%s notes that ids are known from %s on", n.name, n.positionName(l, ident.Position{Offset: w.Identities.From}))
	case queue.WriteRestart:
		l.report(n, "%s begins its log afresh at sequence %d", n.name, w.At.Sequence)
	}
}

func (l *lab) cutText(n *labNode, at ident.Position) string {
	if cut := n.above(at); len(cut) > 0 {
		return fmt.Sprintf("cuts %s, writes ", l.list(cut))
	}
	return "writes "
}

// above lists the batches from p on.
func (n *labNode) above(p ident.Position) (bs []queue.Batch) {
	for _, b := range n.written.batches {
		if b.At.Offset >= p.Offset {
			bs = append(bs, b)
		}
	}
	return bs
}

func stateText(c queue.StateVersion) string {
	if c.Full {
		return fmt.Sprintf("(%d, %d) snapshot %q", c.Epoch, c.N, c.Delta)
	}
	return fmt.Sprintf("(%d, %d) delta %q", c.Epoch, c.N, c.Delta)
}

func (l *lab) saySend(from, to *labNode, e Envelope) {
	how := ""
	if e.Bulk {
		how = " (bulk)"
	}
	if !joined(from, to) {
		how += " (lost)"
	}
	l.say(from, "%s → %s: %s%s", from.name, e.To, l.messageText(from, &e.Msg), how)
}

// messageText names the positions of a message by the log of its sender.
func (l *lab) messageText(from *labNode, m *Message) string {
	committed := "committed " + from.positionName(l, m.Committed)
	switch m.Kind {
	case MsgAppend:
		what := "nothing"
		if len(m.Batches) > 0 {
			what = l.list(m.Batches)
		}
		after := "after " + from.positionName(l, m.Prev)
		if m.Restart {
			after = "from " + from.positionName(l, m.Prev) + " on"
		}
		return fmt.Sprintf("append %s %s, epoch %d, %s", what, after, m.Epoch, committed)
	case MsgChannelState:
		return fmt.Sprintf("channel state %s, epoch %d, %s", stateText(m.State), m.Epoch, committed)
	case MsgProbe:
		return "where does your log end?"
	case MsgProbeReply:
		return fmt.Sprintf("durable up to %s, of epoch %d; promised %d", from.positionName(l, m.Durable), m.LastEpoch, m.Epoch)
	case MsgAppendAck:
		return l.ackText(from, m)
	default:
		panic(fmt.Sprintf("message %d", m.Kind))
	}
}

func (l *lab) ackText(from *labNode, m *Message) string {
	if !m.Reject {
		text := fmt.Sprintf("ack %s, state %d, epoch %d, committed %s", from.positionName(l, m.Durable), m.StateVersion, m.Epoch, from.positionName(l, m.Committed))
		if m.NeedSnapshot {
			text += ", needs a snapshot"
		}
		return text
	}
	var table []string
	for _, e := range m.Epochs {
		table = append(table, fmt.Sprintf("%d up to %s", e.Epoch, from.positionName(l, e.End)))
	}
	if len(table) == 0 {
		table = []string{"none"}
	}
	return fmt.Sprintf("reject, epoch %d; its epochs: %s", m.Epoch, strings.Join(table, ", "))
}

func (l *lab) sayCAS(n *labNode, c CAS) {
	text := fmt.Sprintf("%s proposes %s", n.name, l.keyText(c.State))
	if c.LeaderGone != nil {
		text += fmt.Sprintf(", if %s of process %d is gone", c.LeaderGone.Node, c.LeaderGone.Incarnation)
	}
	l.report(n, "%s", text)
}

// keyText prints a partition's key.
func (l *lab) keyText(s metadata.PartitionState) string {
	var isr []string
	for _, x := range s.ISR {
		name := string(x.Node)
		if n := l.node(x.Node); x.Store != n.store {
			name += " (another store)"
		}
		isr = append(isr, name)
	}
	return fmt.Sprintf("epoch %d, leader %s, ISR %s", s.Epoch, s.Leader, strings.Join(isr, " "))
}

var outcomeNames = [...]string{"", "committed", "duplicate", "not leader", "not enough replicas", "rolled back", "in doubt", "topic full", "disk full", "published before", "below the window", "window full"}

// sayView prints the changes of a machine's role and committed end.
func (l *lab) sayView(n *labNode) {
	v := n.m.View()
	if v.Role != n.view.Role || v.Epoch != n.view.Epoch && (v.Role == Leader || v.Role == Electing) {
		text := fmt.Sprintf("%s is now %s", n.name, v.Role)
		if v.Role == Leader || v.Role == Electing {
			text += fmt.Sprintf(" of epoch %d", v.Epoch)
		}
		l.report(n, "%s", text)
	}
	if v.Committed != n.view.Committed {
		l.say(n, "%s: committed up to %s", n.name, n.positionName(l, v.Committed))
	}
	if v.DiskStalled && !n.view.DiskStalled {
		l.report(n, "%s reports that its disk stalls, and those of others do not", n.name)
	}
	n.view = v
}

// sayAnswers prints completions and alarms.
func (l *lab) sayAnswers(n *labNode, out Effects) {
	for _, d := range out.Done {
		at := ""
		if d.Outcome == outcome.Duplicate || d.Outcome == outcome.Repeated {
			at = fmt.Sprintf(" of sequence %d", d.First)
		}
		if d.Minimum > 0 {
			at = fmt.Sprintf(" (%d of %d)", d.InSync, d.Minimum)
		}
		l.report(n, "%s answers %s: %s%s", n.name, l.tickets[d.Ticket], outcomeNames[d.Outcome], at)
	}
	if out.Alarm != nil {
		l.report(n, "%s ALARM %v", n.name, alarmKind(out.Alarm))
	}
}

// alarmKind leaves the offsets out of an alarm.
func alarmKind(alarm error) error {
	for _, kind := range []error{errTwoLeaders, ErrOtherHistory, errBrokenChain, errAckBeyondEnd} {
		if errors.Is(alarm, kind) {
			return kind
		}
	}
	return alarm
}

// show prints every broker's log and the key. The committed batches stand before the bar.
func (l *lab) show() {
	for _, n := range l.nodes {
		if n.m == nil {
			fmt.Fprintf(&l.out, "%s is down; on its disk: %s\n", n.name, l.list(n.disk.batches))
			continue
		}
		fmt.Fprintf(&l.out, "%s %s, epoch %d: %s", n.name, n.view.Role, n.view.Epoch, l.logText(n))
		if n.reg.text != "" {
			fmt.Fprintf(&l.out, "; channels %q", n.reg.text)
		}
		if n.view.Held > 0 {
			fmt.Fprintf(&l.out, "; holds %d", n.view.Held)
		}
		l.out.WriteString("\n")
	}
	fmt.Fprintf(&l.out, "key: %s\n", l.keyText(l.key))
}

func (l *lab) logText(n *labNode) string {
	var names []string
	if n.written.start.Offset > 0 {
		names = append(names, "…")
	}
	bar := false
	durable := n.disk.end()
	for _, b := range n.written.batches {
		if b.At.Offset >= n.view.Committed.Offset && !bar {
			names, bar = append(names, "|"), true
		}
		name := l.names[b.CRC]
		if b.End.Offset > durable.Offset {
			name = "(" + name + ")"
		}
		names = append(names, name)
	}
	if !bar {
		names = append(names, "|")
	}
	return strings.Join(names, " ")
}
