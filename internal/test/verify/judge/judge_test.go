package judge

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const second = time.Second

func id(partition, sequence int) string {
	return fmt.Sprintf("%016x", uint64(7)<<52|uint64(partition)<<sequenceBits|uint64(sequence))
}

func ok(sent, answered time.Duration) Attempt {
	return Attempt{Sent: sent, Answered: answered, Answer: OK}
}

// good is a history without a fault, with what each rule looks at: two channels, one of them ordered, a put of two messages, a
// deferred one, one for one channel alone, one that is recognised after a doubt, one that was refused, and receipts.
func good() *History {
	h := &History{
		Operations: []Operation{{Text: "create", At: second, Seen: true}},
		Grants: []*Grant{{
			Who: "u#1", Right: "publish", Asked: 1 * second, Known: map[string]time.Duration{"n1": 2 * second},
			Withdrawn: 10 * second, Gone: map[string]time.Duration{"n1": 11 * second},
		}},
		Uses: []Use{
			{Who: "u#1", Right: "publish", Broker: "n1", Sent: 0, Answered: second / 2, Denied: true},
			{Who: "u#1", Right: "publish", Broker: "n1", Sent: 3 * second, Answered: 4 * second, Accepted: true},
			{Who: "u#1", Right: "publish", Broker: "n1", Sent: 9 * second, Answered: 12 * second, Denied: true},
			{Who: "u#1", Right: "publish", Broker: "n1", Sent: 12 * second, Answered: 13 * second, Denied: true},
		},
		Topic:     "orders",
		Channels:  []Channel{{Name: "a"}, {Name: "o", Ordered: true}},
		Tolerance: Tolerance{AfterFinish: AnyNumber},
		Puts: []*Put{
			{Bodies: []string{"m0"}, Attempts: []Attempt{ok(1*second, 2*second)}},
			{Bodies: []string{"m1", "m2"}, Attempts: []Attempt{ok(3*second, 4*second)}},
			{Bodies: []string{"m3"}, Defer: 5 * second, Attempts: []Attempt{ok(5*second, 6*second)}},
			{Bodies: []string{"m4"}, Only: "a", Attempts: []Attempt{ok(7*second, 8*second)}},
			{Bodies: []string{"m5"}, Once: true, Attempts: []Attempt{{Sent: 9 * second, Answered: 10 * second, Answer: InDoubt}, ok(11*second, 12*second)}},
			{Bodies: []string{"m6"}, Attempts: []Attempt{{Sent: 13 * second, Answered: 14 * second, Answer: Refused, Broker: "n1"}}},
		},
	}
	for n, body := range []string{"m0", "m1", "m2", "m3", "m4", "m5"} {
		for _, c := range h.Channels {
			if body == "m4" && c.Name == "o" {
				continue
			}
			at := time.Duration(20+n) * second
			d := &Delivery{Channel: c.Name, Consumer: "c1", ID: id(0, n), Body: body, Attempts: 1, Asked: at - second, At: at}
			if c.Name == "a" {
				d.Receipt = "r-" + body
			}
			d.Settled = []Settlement{{Verb: "finish", At: at + second/2, Accepted: c.Name == "a", Unknown: c.Name == "o"}}
			h.Deliveries = append(h.Deliveries, d)
		}
	}
	return h
}

// of finds the first delivery of a body by a channel.
func of(h *History, channel, body string) *Delivery {
	for _, d := range h.Deliveries {
		if d.Channel == channel && d.Body == body {
			return d
		}
	}
	panic("no such delivery")
}

func without(h *History, channel, body string) {
	var rest []*Delivery
	for _, d := range h.Deliveries {
		if d.Channel != channel || d.Body != body {
			rest = append(rest, d)
		}
	}
	h.Deliveries = rest
}

func again(h *History, channel, body string, change func(d *Delivery)) {
	d := *of(h, channel, body)
	change(&d)
	h.Deliveries = append(h.Deliveries, &d)
}

// fence replaces the ordered channel by one whose deliveries have fencing tokens.
func fence(h *History) {
	h.Channels = []Channel{{Name: "a"}, {Name: "f", Ordered: true, Whole: true, Fenced: true}}
	h.Deliveries = slices.DeleteFunc(h.Deliveries, func(d *Delivery) bool { return d.Channel == "o" })
	h.Puts[3].Only = ""
	for n, body := range []string{"m0", "m1", "m2", "m3", "m4", "m5"} {
		at := time.Duration(30+n) * second
		h.Deliveries = append(h.Deliveries, &Delivery{
			Channel: "f", Consumer: "c1", ID: id(0, n), Body: body, Attempts: 1, Epoch: 1 + uint64(n/3), Asked: at, At: at,
			Settled: []Settlement{{Verb: "finish", At: at, Unknown: true}},
		})
	}
}

func TestGoodHistory(t *testing.T) { require.Empty(t, Check(good())) }

// TestEachRule: each corrupted history breaks the rule that it is made for.
func TestEachRule(t *testing.T) {
	for name, x := range map[string]struct {
		rule    string
		corrupt func(h *History)
	}{
		"acknowledged, and one channel does not have it": {"lost", func(h *History) { without(h, "a", "m0") }},
		"acknowledged, and nobody has it":                {"lost", func(h *History) { without(h, "a", "m5"); without(h, "o", "m5") }},
		"a message that nobody put":                      {"unexpected", func(h *History) { again(h, "a", "m0", func(d *Delivery) { d.Body, d.ID = "ghost", id(0, 90) }) }},
		"refused, and delivered":                         {"refused", func(h *History) { again(h, "a", "m0", func(d *Delivery) { d.Body, d.ID = "m6", id(0, 90) }) }},
		"stored twice":                                   {"duplicate", func(h *History) { again(h, "a", "m0", func(d *Delivery) { d.ID = id(0, 90) }) }},
		"stored again after a doubt, though recognised":  {"duplicate", func(h *History) { again(h, "a", "m5", func(d *Delivery) { d.ID = id(0, 90) }) }},
		"stored again within the window, which was made longer": {"duplicate", func(h *History) {
			h.Windows = []Window{{0, 2 * second}, {time.Second, 20 * second}}
			h.Puts[4].Attempts = []Attempt{ok(9*second, 10*second), ok(25*second, 26*second)}
			again(h, "a", "m5", func(d *Delivery) { d.ID = id(0, 90) })
		}},
		"a repeat is answered as new": {"answered", func(h *History) {
			h.Puts[4].Attempts = []Attempt{ok(9*second, 10*second), {Sent: 11 * second, Answered: 12 * second, Answer: OK, New: true}}
		}},
		"a repeat is answered with another place": {"answered", func(h *History) {
			h.Puts[4].Attempts = []Attempt{{Sent: 9 * second, Answered: 10 * second, Answer: OK, Place: "a"}, {Sent: 11 * second, Answered: 12 * second, Answer: OK, Place: "b"}}
		}},
		"an id with two bodies": {"rewritten", func(h *History) { again(h, "a", "m0", func(d *Delivery) { d.ID = id(0, 1) }) }},
		"no id":                 {"malformed", func(h *History) { of(h, "a", "m0").ID = "x" }},
		"half a put": {"torn", func(h *History) {
			h.Puts[1].Attempts[0].Answer = InDoubt
			without(h, "a", "m2")
			without(h, "o", "m2")
		}},
		"a put with another between": {"torn", func(h *History) {
			of(h, "a", "m2").ID, of(h, "o", "m2").ID = id(0, 90), id(0, 90)
		}},
		"a later put lies before": {"reordered", func(h *History) {
			of(h, "a", "m0").ID, of(h, "o", "m0").ID = id(1, 8), id(1, 8)
			of(h, "a", "m5").ID, of(h, "o", "m5").ID = id(1, 9), id(1, 9)
			h.Puts[4].Attempts = []Attempt{ok(0, second/2)}
		}},
		"before its time": {"early", func(h *History) { of(h, "a", "m3").At = 9 * second }},
		"one of two with the same body, each for a channel, is lost": {"lost", func(h *History) {
			h.Puts = append(h.Puts, &Put{Bodies: []string{"m4"}, Only: "o", Once: true, Attempts: []Attempt{ok(14*second, 15*second)}})
		}},
		"at the wrong channel": {"stray", func(h *History) { again(h, "o", "m5", func(d *Delivery) { d.Body, d.ID = "m4", id(0, 4) }) }},
		"order is not kept":    {"passed", func(h *History) { of(h, "o", "m1").Settled = nil }},
		"an old receipt counts": {"shared", func(h *History) {
			of(h, "a", "m0").Settled = []Settlement{{Verb: "requeue", At: 40 * second, Accepted: true}}
			again(h, "a", "m0", func(d *Delivery) {
				d.Consumer, d.Receipt, d.Attempts, d.Asked, d.At, d.Settled = "c2", "other", 2, 30*second, 31*second, nil
			})
		}},
		"given back, and back too early": {"early", func(h *History) {
			of(h, "a", "m0").Settled = []Settlement{{Verb: "requeue", At: 20 * second, Delay: 5 * second, Accepted: true}}
			again(h, "a", "m0", func(d *Delivery) {
				d.Receipt, d.Attempts, d.Asked, d.At, d.Settled = "other", 2, 23*second, 24*second, nil
			})
		}},
		"the filter of its channel refuses it": {"stray", func(h *History) { h.Channels[0].Accepts = "blue" }},
		"the filter of its channel accepts it, and it does not come": {"lost", func(h *History) {
			h.Channels[1].Accepts, h.Puts[1].Tag = "blue", "blue"
			for _, body := range []string{"m0", "m1", "m2", "m3", "m5"} {
				without(h, "o", body)
			}
		}},
		"refused while it has to be served": {"unserved", func(h *History) { h.Served = []Disturbance{{From: 12 * second, To: 14 * second}} }},
		"an attempt beyond the policy": {"attempts", func(h *History) {
			h.Channels[0].MaxAttempts = 3
			of(h, "a", "m0").Attempts = 4
		}},
		"given back, and never again": {"vanished", func(h *History) {
			of(h, "a", "m0").Settled = []Settlement{{Verb: "requeue", At: 20 * second, Accepted: true}}
		}},
		"failed, expired, and not among the dead letters": {"vanished", func(h *History) {
			h.TTL, h.Channels[0].MaxAttempts = time.Hour, 3
			of(h, "a", "m0").Settled = []Settlement{{Verb: "requeue", At: 20 * second, Accepted: true}}
		}},
		"after its time to live":                                    {"stale", func(h *History) { h.TTL = 5 * second }},
		"deleted, and still there":                                  {"effect", func(h *History) { h.Operations = []Operation{{Text: "delete", At: 50 * second}} }},
		"accepted before the right was granted":                     {"rights", func(h *History) { h.Uses[0].Denied, h.Uses[0].Accepted = false, true }},
		"accepted after the right was revoked":                      {"rights", func(h *History) { h.Uses[3].Denied, h.Uses[3].Accepted = false, true }},
		"denied while the right was there":                          {"rights", func(h *History) { h.Uses[1].Denied, h.Uses[1].Accepted = true, false }},
		"accepted by the right of the user of the same name before": {"rights", func(h *History) { h.Uses[1].Who = "u#0" }},
		"accepted by another right":                                 {"rights", func(h *History) { h.Uses[1].Right = "consume" }},
		"delivered long after the right was revoked": {"rights", func(h *History) {
			h.Uses[3] = Use{Who: "u#1", Right: "publish", Broker: "n1", Sent: 3 * second, Answered: 14 * second, Accepted: true, Pushed: true}
		}},
		"a successor steps back behind a finish": {"passed", func(h *History) { fence(h); again(h, "f", "m1", func(d *Delivery) { d.Epoch, d.At = 2, 70*second }) }},
		"a successor leaves one out":             {"passed", func(h *History) { fence(h); without(h, "f", "m2") }},
		"the log does not have what a channel delivered": {"lost", func(h *History) {
			h.Channels = append(h.Channels, Channel{Name: "log", Log: true})
			for _, body := range []string{"m0", "m1", "m2", "m3"} {
				again(h, "a", body, func(d *Delivery) { d.Channel, d.Settled = "log", nil })
			}
		}},
		"finished without an answer, and again too often": {"redelivered", func(h *History) {
			h.Tolerance.AfterFinish = 1
			again(h, "o", "m5", func(d *Delivery) { d.At = 60 * second })
			again(h, "o", "m5", func(d *Delivery) { d.At = 61 * second })
		}},
		"no attempt": {"attempts", func(h *History) { of(h, "a", "m0").Attempts = 0 }},
		"again, finished": {"redelivered", func(h *History) {
			again(h, "a", "m0", func(d *Delivery) { d.Receipt, d.Attempts, d.Asked, d.At = "other", 2, 50*second, 51*second })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := good()
			x.corrupt(h)
			var rules []string
			for _, v := range Check(h) {
				rules = append(rules, v.Rule)
			}
			require.Contains(t, rules, x.rule)
		})
	}
}

// TestAllowances: what faults may cause is no violation.
func TestAllowances(t *testing.T) {
	for name, change := range map[string]func(h *History){
		"a put in doubt is nowhere": func(h *History) {
			h.Puts[0].Attempts[0].Answer = InDoubt
			without(h, "a", "m0")
			without(h, "o", "m0")
		},
		"a put in doubt is stored as often as it was sent": func(h *History) {
			h.Puts[0].Attempts = append(h.Puts[0].Attempts, Attempt{Sent: 2 * second, Answered: 3 * second, Answer: InDoubt})
			again(h, "a", "m0", func(d *Delivery) { d.ID, d.Receipt = id(1, 0), "other" })
		},
		"finished, and delivered again by a new leader": func(h *History) {
			h.Faults = []Disturbance{{From: 21 * second, To: 22 * second}}
			again(h, "a", "m0", func(d *Delivery) { d.Receipt, d.Attempts, d.Asked, d.At = "other", 2, 23*second, 24*second })
		},
		"a deposed leader delivers later": func(h *History) {
			of(h, "a", "m0").Epoch = 2
			of(h, "a", "m0").Settled[0].At = 40 * second
			again(h, "a", "m0", func(d *Delivery) {
				d.Receipt, d.Epoch, d.Asked, d.At, d.Settled = "other", 1, 30*second, 31*second, nil
			})
		},
		"two with the same body, each for a channel": func(h *History) {
			h.Puts = append(h.Puts, &Put{Bodies: []string{"m4"}, Only: "o", Once: true, Attempts: []Attempt{ok(14*second, 15*second)}})
			again(h, "o", "m5", func(d *Delivery) { d.ID, d.Body, d.At = id(0, 6), "m4", 27*second })
		},
		"given back, and a new leader does not know of the delay": func(h *History) {
			h.Faults = []Disturbance{{From: 21 * second, To: 22 * second}}
			of(h, "a", "m0").Settled = []Settlement{{Verb: "requeue", At: 20 * second, Delay: 5 * second, Accepted: true}}
			again(h, "a", "m0", func(d *Delivery) {
				d.Receipt, d.Attempts, d.Asked, d.At = "other", 2, 23*second, 24*second
				d.Settled = []Settlement{{Verb: "finish", At: 25 * second, Accepted: true}}
			})
		},
		"a channel whose filter refuses all": func(h *History) { h.Channels = append(h.Channels, Channel{Name: "red", Accepts: "red"}) },
		"failed, and among the dead letters": func(h *History) {
			h.Channels[0].MaxAttempts, h.Dead = 3, map[string]bool{"m0": true}
			of(h, "a", "m0").Settled = []Settlement{{Verb: "requeue", At: 20 * second, Accepted: true}}
		},
		"failed, expired, and only a leader that died knew it": func(h *History) {
			h.TTL, h.Channels[0].MaxAttempts = time.Hour, 3
			h.Faults = []Disturbance{{From: 21 * second, To: 22 * second}}
			of(h, "a", "m0").Settled = []Settlement{{Verb: "requeue", At: 20 * second, Accepted: true}}
		},
		"finished by a leader that died, and refused by the next": func(h *History) {
			h.Faults = []Disturbance{{From: 21 * second, To: 22 * second}}
			of(h, "a", "m0").Settled = []Settlement{{Verb: "finish", At: 20 * second}}
		},
		"failed before a consumer saw it, and among the dead letters": func(h *History) {
			h.Channels[0].MaxAttempts, h.Dead = 3, map[string]bool{"m0": true}
			without(h, "a", "m0")
		},
		"expired where there are no dead letters": func(h *History) {
			h.TTL = time.Hour
			of(h, "a", "m0").Settled = []Settlement{{Verb: "requeue", At: 20 * second, Accepted: true}}
		},
		"stored again after its window": func(h *History) {
			h.Windows = []Window{{0, 60 * second}, {time.Second, 10 * second}}
			h.Puts[4].Attempts = []Attempt{ok(9*second, 10*second), ok(25*second, 26*second)}
			again(h, "a", "m5", func(d *Delivery) { d.ID, d.Receipt = id(0, 90), "other" })
		},
		"accepted by a broker that may not know of the end yet": func(h *History) {
			h.Uses[3].Denied, h.Uses[3].Accepted, h.Uses[3].Broker = false, true, "n2"
		},
		"revoked, and granted again": func(h *History) {
			h.Uses[3].Denied, h.Uses[3].Accepted = false, true
			h.Grants = append(h.Grants, &Grant{Who: "u#1", Right: "publish", Asked: 12 * second})
		},
		"delivered when the right has just ended": func(h *History) {
			h.Uses[3] = Use{Who: "u#1", Right: "publish", Broker: "n1", Sent: 3 * second, Answered: 12 * second, Accepted: true, Pushed: true}
		},
		"delivered by a broker that was cut off": func(h *History) {
			h.Faults = []Disturbance{{From: 10 * second, To: 20 * second}}
			h.Uses[3] = Use{Who: "u#1", Right: "publish", Broker: "n1", Sent: 3 * second, Answered: 18 * second, Accepted: true, Pushed: true}
		},
		"a deposed leader steps back, as its fencing token says": func(h *History) {
			fence(h)
			of(h, "f", "m5").Epoch = 3
			again(h, "f", "m1", func(d *Delivery) { d.Epoch, d.At = 2, 70*second })
		},
		"a successor repeats the last one that was finished": func(h *History) {
			fence(h)
			again(h, "f", "m5", func(d *Delivery) { d.Epoch, d.At = 3, 70*second })
		},
		"before its time by less than clocks differ": func(h *History) {
			h.Tolerance.Clocks = 20 * second
			of(h, "a", "m3").At = 9 * second
		},
		"finished without an answer, and again as often as is tolerated": func(h *History) {
			h.Tolerance.AfterFinish = 1
			again(h, "o", "m5", func(d *Delivery) { d.At = 60 * second })
		},
		"a channel that was made later": func(h *History) { h.Channels = append(h.Channels, Channel{Name: "late", Since: 60 * second}) },
	} {
		t.Run(name, func(t *testing.T) {
			h := good()
			change(h)
			require.Empty(t, Check(h))
		})
	}
}
