// Package judge decides whether what the clients of one topic saw is right. It knows puts, their answers, deliveries and what
// consumers did with them, and nothing of the brokers. The simulations, chaos and the tests with real processes record the same
// history, and no other judgement exists.
//
// A rule needs only what its history has: without settlements with an answer, receipts, fencing tokens, deferred messages or a
// policy, the rules about them do not apply. Where clients cannot know enough, Tolerance says what a history may show.
//
// The rules, each with the kind of its violation:
//
//	lost          an acknowledged message reaches every channel that it is for
//	unexpected    a delivered body was put
//	malformed     a message id is 16 hexadecimal digits, each put was tried, and no two puts for one channel share a body
//	refused       a message whose every attempt was refused is nowhere
//	rolled back   nor is one whose attempts were refused and rolled back
//	duplicate     a message is stored at most once for each attempt that was acknowledged or in doubt, and
//	              once at all if its repeats are recognised, within the window that is in force
//	answered      each acknowledgement of a put whose repeats are recognised names its first place, and none but the first says that it is new
//	rewritten     a message id names one body, and one body alone lies at a place
//	torn          the messages of one put are stored together, next to each other, or not at all
//	reordered     a partition is one log: a put that was answered before another one was sent lies before it
//	early         a deferred message, and one that was given back with a delay, is not delivered before its time
//	stray         a message for one channel is delivered by no other, and none by a channel whose filter refuses it
//	hole          a channel that receives everything delivers the sequences of each partition from 0 without a gap
//	passed        an ordered channel delivers a message only after consumers have tried to finish all before it; with fencing
//	              tokens, no leader but one that was replaced delivers a message before the last one that was finished
//	shared        a receipt is accepted only for the newest delivery of its message; one of a leader that was replaced is not newer
//	attempts      the attempts of a message begin at one, do not fall, and end where the channel's policy says
//	vanished      a message that was delivered is delivered until consumers try to finish it, or is among the dead letters
//	stale         a message is not delivered after its time to live
//	unserved      puts are accepted while the faults leave enough brokers, as Served says
//	effect        what an operator's request did, as its answer said, is seen soon after
//	redelivered   a message is not delivered again after its finish was accepted and a quiet time has passed; after finishes
//	              that have no answer as often as Tolerance says
//	rights        a broker accepts no request of a client after the end of its right has reached the broker, and denies none before
//	              that end was asked for
package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Answer is the answer to one attempt to put.
type Answer int

// Answers.
const (
	OK         Answer = iota + 1
	Refused           // nothing is stored: definite
	InDoubt           // no answer, or the broker said so
	RolledBack        // written, and removed again: as definite as a refusal
)

// String names the answer.
func (a Answer) String() string {
	return [...]string{"none", "ok", "refused", "in doubt", "rolled back"}[a]
}

// definite reports whether the attempt stored nothing.
func (a Answer) definite() bool { return a == Refused || a == RolledBack }

// Attempt is one try of a put. Times are since the beginning of the history.
type Attempt struct {
	Sent, Answered time.Duration
	Answer         Answer
	Broker         string // that the put reached; "" = none
	Why            string // of a refusal
	Place          string // of the message, if the answer names it
	New            bool   // the answer says that the put was not recognised
}

// Put is one put of one or several messages, with all attempts.
type Put struct {
	Producer int
	Bodies   []string // all different in the whole history, but that puts for one channel each may share theirs
	Once     bool     // repeats are recognised, whatever the answers were
	Only     string   // the only channel that receives it; "" = all
	Tag      string   // for the filters of channels
	Defer    time.Duration
	Attempts []Attempt
}

func (p *Put) count(a Answer) (n int) {
	for _, t := range p.Attempts {
		if t.Answer == a {
			n++
		}
	}
	return n
}

// Acknowledged reports whether an attempt was answered OK.
func (p *Put) Acknowledged() bool { return p.count(OK) > 0 }

// Delivery is one message as a consumer got it.
type Delivery struct {
	Channel  string
	Consumer string
	ID       string // 16 hex digits
	Body     string
	Attempts int
	At       time.Duration
	Asked    time.Duration // when the consumer asked for it, by HTTP; else At
	Receipt  string        // "" over TCP
	Epoch    uint64        // of the leader that delivered it, if the receipt or a fencing token says so
	// Settled are the accepted and refused receipts, and over TCP what was sent, in order.
	Settled []Settlement
}

// Settlement is what a consumer did with a delivery.
type Settlement struct {
	Verb     string // finish, requeue, touch
	At       time.Duration
	Delay    time.Duration // of a requeue
	Accepted bool          // the broker said so; over TCP, which has no answer, false
	Unknown  bool          // no answer
	Broker   string        // that answered, for the story
}

// Channel is one channel of the topic.
type Channel struct {
	Name    string
	Ordered bool
	Since   time.Duration // messages put later are for it
	// MaxAttempts is the policy's; after it, and after its time to live if it has failed before, a message is among the dead letters.
	// 0 = no policy.
	MaxAttempts int
	Accepts     string // the tag of the messages that its filter lets through; "" = there is none
	Whole       bool   // every message of the topic is for it, from the first one on, and none was removed
	Fenced      bool   // an ordered one that is whole, and whose deliveries have fencing tokens (Epoch)
	Log         bool   // not a channel: what a reader of the log found. Nothing is finished there.
}

// History is all that the clients of one topic saw. Puts of one producer are in their order, deliveries in the order of arrival.
type History struct {
	Topic      string
	Puts       []*Put
	Channels   []Channel
	Deliveries []*Delivery
	Windows    []Window        // in which repeats are recognised, in the order in which they came into force; none = for ever
	Dead       map[string]bool // bodies of the dead letters
	TTL        time.Duration   // of each message; 0 = no limit
	Faults     []Disturbance
	Operations []Operation   // that were answered with success
	Served     []Disturbance // times in which every put has to be accepted
	Grants     []*Grant
	Uses       []Use
	Undrained  bool // the history ends before every channel was empty: nothing is called lost
	Lossy      bool // messages were removed on purpose
	Tolerance  Tolerance
}

// Tolerance is what a history may show because its clients cannot know whether it is wrong.
type Tolerance struct {
	// AfterFinish is how many deliveries may follow a finish of their message that has no answer, which a new leader may have
	// lost; AnyNumber = no limit.
	AfterFinish int
	// Leaders says that leaders may change at any time, without a Disturbance that says so: the finish that one of them accepted, or
	// the delay of a requeue, may be lost.
	Leaders bool
	// Clocks is by how much the clocks of brokers may differ from that of the clients: a leader decides by its own clock when a
	// message is due, and when its time to live is over.
	Clocks time.Duration
}

// AnyNumber is no limit.
const AnyNumber = -1

// Operation is an operator's request.
type Operation struct {
	Text string
	At   time.Duration // of the answer
	Seen bool          // its effect
}

// Window is how long a put is recognised, from a time on.
type Window struct{ From, For time.Duration }

// Disturbance is a time; in History.Faults one in which a leader may have changed.
type Disturbance struct{ From, To time.Duration }

// Violation is one rule that was broken.
type Violation struct{ Rule, Detail string }

// String prints a violation.
func (v Violation) String() string { return v.Rule + ": " + v.Detail }

const (
	partitionBits = 10
	sequenceBits  = 42
)

// Place is where a message lies.
type Place struct {
	Partition int
	Sequence  uint64
}

// ParseID takes the place out of a message id: 16 hexadecimal digits of {12-bit topic nonce, 10-bit partition, 42-bit sequence}.
func ParseID(id string) (at Place, ok bool) {
	n, err := strconv.ParseUint(id, 16, 64)
	if err != nil || len(id) != 16 {
		return Place{}, false
	}
	return Place{int(n >> sequenceBits & (1<<partitionBits - 1)), n & (1<<sequenceBits - 1)}, true
}

// message is one body of a put.
type message struct {
	put  *Put
	body string
}

// state is what the rules need to know.
type state struct {
	h       *History
	out     []Violation
	puts    map[string][]*Put            // by body
	places  map[message]map[string]Place // message → ids under which it is stored
	body    map[string]string            // id → body
	at      map[Place]*Put               // place → the put of what lies there
	channel map[string]map[string]bool   // channel → bodies that it delivered
}

// Check returns all violations of a history.
func Check(h *History) []Violation { return check(h).out }

func check(h *History) *state {
	s := &state{h: h, puts: map[string][]*Put{}, places: map[message]map[string]Place{}, body: map[string]string{}, at: map[Place]*Put{}, channel: map[string]map[string]bool{}}
	for _, c := range h.Channels {
		s.channel[c.Name] = map[string]bool{}
	}
	for _, p := range h.Puts {
		s.formed(p)
	}
	for _, d := range h.Deliveries {
		s.read(d)
	}
	for _, p := range h.Puts {
		s.answered(p)
		s.stored(p)
		s.reached(p)
		s.served(p)
	}
	for _, o := range h.Operations {
		if !o.Seen {
			s.fault("effect", "%s was answered at %s, and is not so", o.Text, o.At)
		}
	}
	s.order()
	for _, c := range h.Channels {
		s.consumed(c)
	}
	for _, u := range h.Uses {
		s.rights(u)
	}
	if n, most := s.afterFinish(), h.Tolerance.AfterFinish; n > most && most != AnyNumber {
		s.fault("redelivered", "%d deliveries of messages that were finished before, %d are allowed", n, most)
	}
	return s
}

// formed judges a put by itself.
func (s *state) formed(p *Put) {
	if len(p.Attempts) == 0 || len(p.Bodies) == 0 {
		s.fault("malformed", "a put of producer %d without an attempt or a body: %q", p.Producer, p.Bodies)
	}
	for _, b := range p.Bodies {
		for _, other := range s.puts[b] {
			if p.Only == "" || other.Only == "" || p.Only == other.Only {
				s.fault("malformed", "two puts of %s", brief(b))
			}
		}
		s.puts[b] = append(s.puts[b], p)
	}
}

func (s *state) fault(rule, format string, args ...any) {
	s.out = append(s.out, Violation{rule, s.h.Topic + ": " + fmt.Sprintf(format, args...)})
}

// read judges a delivery by itself.
func (s *state) read(d *Delivery) {
	at, ok := ParseID(d.ID)
	if !ok {
		s.fault("malformed", "%q is no message id", d.ID)
		return
	}
	if before, seen := s.body[d.ID]; seen && before != d.Body {
		s.fault("rewritten", "%s was %s and became %s", d.ID, brief(before), brief(d.Body))
	}
	s.body[d.ID] = d.Body
	p := s.putOf(d)
	if p == nil {
		s.fault("unexpected", "%s from %s at %s", brief(d.Body), d.Channel, d.At)
		return
	}
	m := message{p, d.Body}
	if s.places[m] == nil {
		s.places[m] = map[string]Place{}
	}
	s.places[m][d.ID] = at
	s.at[at] = p
	if s.channel[d.Channel] != nil {
		s.channel[d.Channel][d.Body] = true
	}
	if c := s.h.channel(d.Channel); c != nil && !p.For(*c) {
		s.fault("stray", "%s is for %q with the tag %q, and was delivered by %s", brief(d.Body), p.Only, p.Tag, d.Channel)
	}
	if sent, ok := p.firstStored(); ok && p.Defer > 0 && d.At < sent+p.Defer-s.h.Tolerance.Clocks {
		s.fault("early", "%s was sent at %s to be delivered %s later, and came from %s at %s", brief(d.Body), sent, p.Defer, d.Channel, d.At)
	}
}

// putOf finds the put of a delivery: of several with the body the one for its channel.
func (s *state) putOf(d *Delivery) *Put {
	all := s.puts[d.Body]
	for _, p := range all {
		if p.Only == d.Channel {
			return p
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[0]
}

// For reports whether a channel receives the messages of a put.
func (p *Put) For(c Channel) bool {
	return (p.Only == "" || p.Only == c.Name) && (c.Accepts == "" || p.Tag == c.Accepts)
}

func (h *History) channel(name string) *Channel {
	for i := range h.Channels {
		if h.Channels[i].Name == name {
			return &h.Channels[i]
		}
	}
	return nil
}

// firstStored is when the first attempt was sent that may have stored the put.
func (p *Put) firstStored() (time.Duration, bool) {
	for _, a := range p.Attempts {
		if !a.Answer.definite() {
			return a.Sent, true
		}
	}
	return 0, false
}

// answered compares the acknowledgements of a put with the first one, within its window.
func (s *state) answered(p *Put) {
	if !p.Once || s.outOfWindow(p) > 0 {
		return
	}
	acknowledged, place := false, ""
	for _, a := range p.Attempts {
		if a.Answer != OK {
			continue
		}
		if acknowledged && a.New || place != "" && a.Place != "" && a.Place != place {
			s.fault("answered", "%s, acknowledged before with %x, is answered at %s with %x, new: %t", brief(p.first()), place, a.Answered, a.Place, a.New)
		}
		acknowledged = true
		if place == "" {
			place = a.Place
		}
	}
}

// stored compares how often the messages of a put are stored with its answers.
func (s *state) stored(p *Put) {
	allowed := p.count(OK) + p.count(InDoubt)
	if p.Once {
		allowed = min(allowed, 1+s.outOfWindow(p))
	}
	found := 0
	for _, b := range p.Bodies {
		places := s.places[message{p, b}]
		n := len(places)
		switch {
		case n > allowed && allowed > 0:
			s.fault("duplicate", "%s is stored as %v, attempts %v", brief(b), places, p.Attempts)
		case n > allowed && p.count(RolledBack) > 0:
			s.fault("rolled back", "%s is stored as %v, attempts %v", brief(b), places, p.Attempts)
		case n > allowed:
			s.fault("refused", "%s is stored as %v, attempts %v", brief(b), places, p.Attempts)
		}
		if n > 0 {
			found++
		}
	}
	if found > 0 && found < len(p.Bodies) && !s.h.Undrained && !s.h.Lossy && s.h.TTL == 0 {
		s.fault("torn", "%d of %d messages of the put of %s are stored, attempts %v", found, len(p.Bodies), brief(p.Bodies[0]), p.Attempts)
	}
	if found == len(p.Bodies) && found > 1 {
		s.together(p)
	}
}

// settling is how long a change of the window may take to come into force.
const settling = 5 * time.Second

// outOfWindow counts the repeats of a put that came when its window may have been over.
func (s *state) outOfWindow(p *Put) (n int) {
	first, _ := p.firstStored()
	for _, a := range p.Attempts {
		if !a.Answer.definite() && a.Answered-first >= s.h.window(a.Sent-settling, a.Answered) {
			n++
		}
	}
	return n
}

// window is the shortest window that was in force between two times.
func (h *History) window(from, to time.Duration) time.Duration {
	shortest := time.Duration(never)
	for i, w := range h.Windows {
		if w.From <= to && (i+1 == len(h.Windows) || h.Windows[i+1].From >= from) {
			shortest = min(shortest, w.For)
		}
	}
	return shortest
}

// together requires the messages of a put next to each other, for puts that are stored once.
func (s *state) together(p *Put) {
	var first Place
	for i, b := range p.Bodies {
		places := s.places[message{p, b}]
		if len(places) != 1 {
			return
		}
		for _, at := range places {
			if i == 0 {
				first = at
			} else if at != (Place{first.Partition, first.Sequence + uint64(i)}) {
				s.fault("torn", "message %d of the put of %s lies at %v, the first at %v", i, brief(p.Bodies[0]), at, first)
				return
			}
		}
	}
}

// reached requires each acknowledged message from every channel that it is for.
func (s *state) reached(p *Put) {
	if !p.Acknowledged() || s.h.Undrained || s.h.Lossy || s.h.TTL > 0 {
		return
	}
	for _, c := range s.h.Channels {
		if !p.For(c) || c.Since > p.Attempts[0].Sent {
			continue
		}
		for _, b := range p.Bodies {
			// A message may fail without that a consumer sees it: its connection has ended.
			if !s.channel[c.Name][b] && !(c.MaxAttempts > 0 && s.h.Dead[b]) {
				s.fault("lost", "%s of producer %d did not come from channel %s; attempts %v, stored as %v", brief(b), p.Producer, c.Name, p.Attempts, s.places[message{p, b}])
			}
		}
	}
}

// order requires the log of each partition in the order of real time: what was answered before something else was sent lies
// before it. Of a put that is stored more than once, each copy that was sent later lies behind; the copy that was acknowledged is
// known to lie at the first one, or behind it, if all copies are in one partition.
func (s *state) order() {
	type entry struct {
		sent, answered time.Duration
		sequence       uint64
		body           string
	}
	logs := map[int][]entry{}
	for _, p := range s.h.Puts {
		sent, stored := p.firstStored()
		places := s.places[message{p, p.first()}]
		if !stored || len(places) == 0 {
			continue
		}
		firsts := map[int]uint64{}
		for _, at := range places {
			if n, ok := firsts[at.Partition]; !ok || at.Sequence < n {
				firsts[at.Partition] = at.Sequence
			}
		}
		answered := time.Duration(never)
		if n := p.count(OK); len(firsts) == 1 && (n == 1 && p.count(InDoubt) == 0 || n > 0 && s.sees(p)) {
			answered = p.Attempts[slices.IndexFunc(p.Attempts, func(a Attempt) bool { return a.Answer == OK })].Answered
		}
		for partition, n := range firsts {
			logs[partition] = append(logs[partition], entry{sent, answered, n, p.first()})
		}
	}
	for partition, log := range logs {
		slices.SortFunc(log, func(a, b entry) int { return cmp.Compare(a.sequence, b.sequence) })
		earliest := entry{answered: never} // the earliest answer of those behind
		for _, e := range slices.Backward(log) {
			if earliest.answered < e.sent {
				s.fault("reordered", "partition %d: %s at %d was answered at %s, before %s at %d was sent at %s", partition, brief(earliest.body), earliest.sequence, earliest.answered, brief(e.body), e.sequence, e.sent)
			}
			if e.answered < earliest.answered {
				earliest = e
			}
		}
	}
}

// never is after every history.
const never = 1 << 62

// sees reports whether every copy of a put that is stored was delivered.
func (s *state) sees(p *Put) bool {
	return !s.h.Undrained && !s.h.Lossy && s.h.TTL == 0 && !s.h.Dead[p.first()]
}

// first is the body of the first message.
func (p *Put) first() string {
	if len(p.Bodies) == 0 {
		return ""
	}
	return p.Bodies[0]
}

// consumed judges the deliveries of a channel in their order.
func (s *state) consumed(c Channel) {
	of := map[string][]*Delivery{} // by id
	var sorted []*Delivery
	for _, d := range s.h.Deliveries {
		if d.Channel == c.Name {
			of[d.ID] = append(of[d.ID], d)
			sorted = append(sorted, d)
		}
	}
	if c.Whole {
		s.dense(c, sorted)
	}
	if c.Log {
		return
	}
	for _, list := range of {
		s.receipts(list)
		s.again(list)
		s.givenBack(list)
		s.kept(c, list)
	}
	for _, d := range sorted {
		s.alive(d, of[d.ID])
	}
	if c.Ordered {
		s.ordered(c, sorted)
	}
	if c.Fenced {
		s.fenced(c, sorted)
	}
}

// receipts requires that a receipt settles nothing once another consumer has asked for and got its message.
func (s *state) receipts(list []*Delivery) {
	for _, d := range list {
		if d.Attempts < 1 {
			s.fault("attempts", "%s has %d attempts", brief(d.Body), d.Attempts)
		}
		for _, x := range d.Settled {
			if !x.Accepted || d.Receipt == "" {
				continue
			}
			for _, later := range list {
				if later.Receipt != "" && later.Receipt != d.Receipt && later.Epoch >= d.Epoch && later.Attempts >= d.Attempts && later.Asked > d.At && later.At < x.At {
					s.fault("shared", "%s by %s of %s was accepted at %s by %s, but %s had got %s at %s: %s", x.Verb, d.Receipt, brief(d.Body), x.At, x.Broker, later.Consumer, later.Receipt, later.At, lives(list))
				}
			}
		}
	}
}

// quiet is how long after a disturbance a leader may deliver what was finished during it.
const quiet = 15 * time.Second

// again refuses a delivery of a message whose finish was accepted, unless a leader may have changed since.
func (s *state) again(list []*Delivery) {
	done := time.Duration(-1)
	for _, d := range list {
		if done >= 0 && d.At > done && !s.h.Tolerance.Leaders && !s.disturbed(done-quiet, d.At) {
			s.fault("redelivered", "%s from %s at %s, finished at %s: %s", brief(d.Body), d.Channel, d.At, done, lives(list))
		}
		for _, x := range d.Settled {
			if x.Verb == "finish" && x.Accepted && (done < 0 || x.At < done) {
				done = x.At
			}
		}
	}
}

// timely is how long after its delivery a message is surely in flight. Messages time out later.
const timely = time.Second

// givenBack refuses a delivery of a message before the end of the delay with which it was given back, unless a leader may have changed
// meanwhile. A consumer that does anything else with the message than to give it back once proves nothing.
func (s *state) givenBack(list []*Delivery) {
	for i, d := range list[:max(0, len(list)-1)] {
		if len(d.Settled) != 1 {
			continue
		}
		x, next := d.Settled[0], list[i+1]
		sure := x.Verb == "requeue" && (x.Accepted || d.Receipt == "") && x.At < d.At+timely && next.Asked > d.At && !s.h.Tolerance.Leaders
		if sure && next.At < x.At+x.Delay-s.h.Tolerance.Clocks && !s.disturbed(d.At-quiet, next.At) {
			s.fault("early", "%s of %s was given back at %s for %s, and came at %s: %s", brief(d.Body), d.Channel, x.At, x.Delay, next.At, lives(list))
		}
	}
}

// kept requires that a message is delivered until consumers have tried to finish it, or ends among the dead letters. One with a time to
// live may go without a trace where there is no topic for dead letters.
func (s *state) kept(c Channel, list []*Delivery) {
	body := list[0].Body
	p := s.putOf(list[0])
	if s.h.Undrained || s.h.Lossy || p == nil || !p.Acknowledged() || s.h.Dead[body] || s.h.TTL > 0 && c.MaxAttempts == 0 {
		return
	}
	if s.h.TTL > 0 && s.disturbed(list[0].At-quiet, list[len(list)-1].At+s.h.TTL+quiet) {
		return // a leader that died may have been alone to know that it failed
	}
	for _, d := range list {
		if c.MaxAttempts > 0 && d.Attempts > c.MaxAttempts {
			s.fault("attempts", "%s has %d attempts, of %d that %s allows: %s", brief(body), d.Attempts, c.MaxAttempts, c.Name, lives(list))
			return
		}
		for _, x := range d.Settled {
			// The next leader refuses a finish that the one before carried out.
			if x.Verb == "finish" && (x.Accepted || x.Unknown || s.disturbed(x.At-quiet, x.At+timely)) {
				return
			}
		}
	}
	s.fault("vanished", "%s of %s was not finished, and did not come again: %s", brief(body), c.Name, lives(list))
}

// alive refuses a delivery after the time to live, unless the way to the consumer was disturbed.
func (s *state) alive(d *Delivery, of []*Delivery) {
	p := s.putOf(d)
	if s.h.TTL == 0 || p == nil || p.Defer > 0 {
		return
	}
	newest := p.Attempts[len(p.Attempts)-1].Answered
	if d.At > newest+s.h.TTL+timely+s.h.Tolerance.Clocks && !s.disturbed(d.At-quiet, d.At) {
		s.fault("stale", "%s was put until %s to live for %s, and came from %s at %s: %s", brief(d.Body), newest, s.h.TTL, d.Channel, d.At, lives(of))
	}
}

// served requires that a put is accepted by the broker that it reached.
func (s *state) served(p *Put) {
	for _, a := range p.Attempts {
		if a.Answer != OK && a.Broker != "" && slices.ContainsFunc(s.h.Served, func(t Disturbance) bool { return t.From <= a.Sent && a.Sent < t.To }) {
			s.fault("unserved", "%s was sent at %s, and the answer at %s was %s: %s", brief(p.Bodies[0]), a.Sent, a.Answered, a.Answer, a.Why)
			return
		}
	}
}

func (s *state) disturbed(from, to time.Duration) bool {
	return slices.ContainsFunc(s.h.Faults, func(f Disturbance) bool { return f.From <= to && f.To+quiet >= from })
}

// ordered requires that consumers have tried to finish everything before a message of the same partition.
func (s *state) ordered(c Channel, deliveries []*Delivery) {
	tried := map[Place]time.Duration{} // the first attempt to finish
	for _, d := range deliveries {
		at, _ := ParseID(d.ID)
		for _, x := range d.Settled {
			if t, ok := tried[at]; x.Verb == "finish" && (!ok || x.At < t) {
				tried[at] = x.At
			}
		}
	}
	newest := map[int]uint64{} // the highest sequence delivered, by partition
	for _, d := range deliveries {
		at, _ := ParseID(d.ID)
		for n, known := newest[at.Partition]; known && n < at.Sequence; n++ {
			p := Place{at.Partition, n}
			if t, ok := tried[p]; s.has(c, p) && (!ok || t > d.At) {
				s.fault("passed", "%s of %s, partition %d, sequence %d came at %s; %d was not finished", brief(d.Body), c.Name, at.Partition, at.Sequence, d.At, n)
				break
			}
		}
		newest[at.Partition] = max(newest[at.Partition], at.Sequence)
	}
}

// has reports whether something for the channel lies at a place.
func (s *state) has(c Channel, p Place) bool {
	put := s.at[p]
	return put != nil && put.For(c)
}

// lives describes the deliveries of a message.
func lives(list []*Delivery) string {
	var b strings.Builder
	for _, d := range list {
		fmt.Fprintf(&b, "[%s to %s, attempt %d", d.At, d.Consumer, d.Attempts)
		for _, x := range d.Settled {
			fmt.Fprintf(&b, ", %s %s %t", x.Verb, x.At, x.Accepted)
		}
		b.WriteString("] ")
	}
	return b.String()
}

// brief is enough of a body to find it.
func brief(body string) string {
	const enough = 40
	if len(body) > enough {
		body = body[:enough] + "…"
	}
	return strconv.Quote(body)
}
