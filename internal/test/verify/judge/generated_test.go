package judge

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	producers  = 4
	partitions = 3
	putsEach   = 50
)

// generated is a history with the figures that a correct cluster may show.
type generated struct {
	History
	now time.Duration
	end [partitions]int // the next sequence
}

func (h *generated) tick() time.Duration { h.now += time.Millisecond; return h.now }

// put adds a put with the answers to its attempts.
func (h *generated) put(producer int, body string, answers ...Answer) *Put {
	p := &Put{Producer: producer, Bodies: []string{body}}
	for _, a := range answers {
		p.Attempts = append(p.Attempts, Attempt{Sent: h.tick(), Answered: h.tick(), Answer: a})
	}
	h.Puts = append(h.Puts, p)
	return p
}

// deliver adds a delivery that is finished at once.
func (h *generated) deliver(id, body string) *Delivery {
	d := &Delivery{Channel: "c", ID: id, Body: body, Attempts: 1, At: h.tick()}
	h.Deliveries = append(h.Deliveries, d)
	return d
}

func (h *generated) last() string { h.end[0]++; return id(0, h.end[0]-1) }

// generate makes attempts in doubt that were stored at once, late or not, definite failures, a failover that delivers again, and
// consumers that receive the messages in any order.
func generate(seed uint64) *generated {
	r := rand.New(rand.NewPCG(seed, 1))
	h := &generated{History: History{Channels: []Channel{{Name: "c", Whole: true}}}}
	type stored struct{ id, body string }
	var all []stored
	store := func(body string) {
		p := r.IntN(partitions)
		all = append(all, stored{id(p, h.end[p]), body})
		h.end[p]++
	}
	var late []string // a broker was stopped with them
	for n := range putsEach {
		if r.IntN(10) == 0 {
			for _, body := range late {
				store(body)
			}
			late = nil
		}
		for producer := range producers {
			body := fmt.Sprintf("%d-%d", producer, n)
			var answers []Answer
			if r.IntN(10) == 0 {
				answers = append(answers, []Answer{Refused, RolledBack}[r.IntN(2)])
			}
			if r.IntN(10) == 0 {
				answers = append(answers, InDoubt)
				switch r.IntN(3) {
				case 0:
					store(body)
				case 1:
					late = append(late, body)
				}
			}
			store(body)
			h.put(producer, body, append(answers, OK)...)
		}
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for i, x := range all {
		d := h.deliver(x.id, x.body)
		if i != 3 {
			d.Settled = []Settlement{{Verb: "finish", At: h.tick(), Unknown: true}}
		}
	}
	again := h.deliver(all[3].id, all[3].body) // timed out and finished late: no fault
	again.Attempts, again.Settled = 2, []Settlement{{Verb: "finish", At: h.tick(), Unknown: true}}
	h.Deliveries[3].Settled = []Settlement{{Verb: "finish", At: h.tick(), Unknown: true}}
	return h
}

func TestGeneratedHistoriesPass(t *testing.T) {
	for seed := range uint64(200) {
		h := generate(seed)
		r := Judge(&h.History)
		require.Empty(t, r.Violations, "seed %d: %s", seed, r)
		require.Equal(t, producers*putsEach, r.Acknowledged)
		require.Equal(t, 1, r.Redelivered)
		require.Zero(t, r.AfterFinish)
		require.Equal(t, 2, r.AttemptsMax)
	}
}

// clean finds a put whose only answer is OK, and its delivery.
func (h *generated) clean(skip int) (*Put, *Delivery) {
	for _, p := range h.Puts {
		if len(p.Attempts) != 1 {
			continue
		}
		if skip--; skip >= 0 {
			continue
		}
		return p, h.Deliveries[slices.IndexFunc(h.Deliveries, func(d *Delivery) bool { return d.Body == p.Bodies[0] })]
	}
	panic("every put was tried more than once")
}

// corruptions each break a rule.
var corruptions = []struct {
	name    string
	corrupt func(*generated)
	want    string
}{
	{"an acknowledged put never arrives", func(h *generated) { p, _ := h.clean(0); without(&h.History, "c", p.Bodies[0]) }, "lost"},
	{"the last acknowledged put never arrives", func(h *generated) { without(&h.History, "c", h.Puts[len(h.Puts)-1].Bodies[0]) }, "lost"},
	{"nothing arrives", func(h *generated) { h.Deliveries = nil }, "lost"},
	{"one byte of a body changes", func(h *generated) { h.Deliveries[5].Body += "x" }, "unexpected"},
	{"a message nobody put", func(h *generated) { h.deliver(h.last(), "ghost") }, "unexpected"},
	{"a refused put arrives", func(h *generated) { h.put(0, "no", Refused); h.deliver(h.last(), "no") }, "refused"},
	{"a rolled-back put arrives", func(h *generated) { h.put(0, "no", RolledBack); h.deliver(h.last(), "no") }, "rolled back"},
	{"a put is stored twice without doubt", func(h *generated) { p, _ := h.clean(0); h.deliver(h.last(), p.Bodies[0]) }, "duplicate"},
	{"a rolled-back attempt is stored beside its retry", func(h *generated) {
		p, _ := h.clean(0)
		p.Attempts = append([]Attempt{{Answer: RolledBack}}, p.Attempts...)
		h.deliver(h.last(), p.Bodies[0])
	}, "duplicate"},
	{"one doubt, three copies", func(h *generated) {
		p, _ := h.clean(0)
		p.Attempts = append([]Attempt{{Answer: InDoubt}}, p.Attempts...)
		h.deliver(h.last(), p.Bodies[0])
		h.deliver(h.last(), p.Bodies[0])
	}, "duplicate"},
	{"an id gets another body", func(h *generated) {
		_, d := h.clean(0)
		_, e := h.clean(1)
		h.deliver(d.ID, e.Body)
	}, "rewritten"},
	{"a sequence is passed over", func(h *generated) { h.put(0, "late", OK); h.last(); h.deliver(h.last(), "late") }, "hole"},
	{"the beginning is passed over", func(h *generated) { h.put(0, "p9", OK); h.deliver(id(9, 1), "p9") }, "hole"},
	{"two puts of one producer change places", func(h *generated) {
		h.put(0, "a", OK)
		h.put(0, "b", OK)
		h.deliver(h.last(), "b")
		h.deliver(h.last(), "a")
	}, "reordered"},
	{"puts of two producers, one after the other, change places", func(h *generated) {
		h.put(0, "a", OK)
		h.put(1, "b", OK)
		h.deliver(h.last(), "b")
		h.deliver(h.last(), "a")
	}, "reordered"},
	{"a put is stored before one acknowledged earlier, both in doubt once", func(h *generated) {
		h.put(0, "a", InDoubt, OK)
		h.put(0, "b", InDoubt, OK)
		h.deliver(h.last(), "b")
		h.deliver(h.last(), "b")
		h.deliver(h.last(), "a")
	}, "reordered"},
	{"a put in doubt is stored before one acknowledged earlier, and behind it as well", func(h *generated) {
		h.put(0, "a", OK)
		h.put(0, "b", InDoubt, OK)
		h.deliver(h.last(), "b")
		h.deliver(h.last(), "a")
		h.deliver(h.last(), "b")
	}, "reordered"},
	{"a finished message comes again", func(h *generated) { h.deliver(h.Deliveries[9].ID, h.Deliveries[9].Body) }, "redelivered"},
	{"an id of stock nsqd's making", func(h *generated) { h.Deliveries[0].ID = "not hex at all!!" }, "malformed"},
	{"a put without an answer", func(h *generated) { h.put(0, "?") }, "malformed"},
	{"two puts of one body", func(h *generated) { h.Puts = append(h.Puts, h.Puts[0]) }, "malformed"},
}

func TestCorruptedHistoriesAreFlagged(t *testing.T) {
	for _, c := range corruptions {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(20) {
				h := generate(seed)
				c.corrupt(h)
				r := Judge(&h.History)
				require.True(t, slices.ContainsFunc(r.Violations, func(v Violation) bool { return v.Rule == c.want }), "seed %d: want %q, got %s", seed, c.want, r)
			}
		})
	}
}

func TestAllowedRedelivery(t *testing.T) {
	h := generate(1)
	h.deliver(h.Deliveries[9].ID, h.Deliveries[9].Body).Settled = []Settlement{{Verb: "finish", At: h.tick(), Unknown: true}}
	for most, want := range map[int]int{0: 1, 1: 0, AnyNumber: 0} {
		h.Tolerance.AfterFinish = most
		require.Len(t, Check(&h.History), want, "%d are allowed", most)
	}
}

func TestParseID(t *testing.T) {
	at, ok := ParseID(id(1023, 1<<42-1))
	require.True(t, ok)
	require.Equal(t, Place{Partition: 1023, Sequence: 1<<42 - 1}, at)
	for _, bad := range []string{"", "0", "00000000000000000", "000000000000000g"} {
		_, ok := ParseID(bad)
		require.False(t, ok, bad)
	}
}
