package history

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	producers  = 4
	partitions = 3
	putsEach   = 50
)

func id(partition, sequence int) string { return fmt.Sprintf("abc%013x", partition<<42|sequence) }

// good makes a history that a correct cluster may show: attempts in doubt that
// were stored at once, late or not, definite failures, a failover that delivers
// again.
func good(seed uint64) History {
	r := rand.New(rand.NewPCG(seed, 1))
	var h History
	var next [partitions]int
	store := func(body string) {
		p := r.IntN(partitions)
		h.Deliveries = append(h.Deliveries, Delivery{ID: id(p, next[p]), Body: body, Attempts: 1})
		next[p]++
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
			put := Put{Producer: producer, Body: fmt.Sprintf("%d-%d", producer, n)}
			if r.IntN(10) == 0 {
				put.Answers = append(put.Answers, []Answer{Refused, RolledBack}[r.IntN(2)])
			}
			if r.IntN(10) == 0 {
				put.Answers = append(put.Answers, InDoubt)
				switch r.IntN(3) {
				case 0:
					store(put.Body)
				case 1:
					late = append(late, put.Body)
				}
			}
			put.Answers = append(put.Answers, OK)
			store(put.Body)
			h.Puts = append(h.Puts, put)
		}
	}
	r.Shuffle(len(h.Deliveries), func(i, j int) { // many consumers: any order of arrival
		h.Deliveries[i], h.Deliveries[j] = h.Deliveries[j], h.Deliveries[i]
	})
	for i := range h.Deliveries {
		h.Deliveries[i].FinishedAt = i + 1
	}
	again := h.Deliveries[3] // timed out and finished late: no fault
	again.Attempts = 2
	h.Deliveries = append(h.Deliveries, again)
	h.Deliveries[3].FinishedAt = len(h.Deliveries)
	return h
}

func TestGoodHistoriesPass(t *testing.T) {
	for seed := range uint64(200) {
		r := Check(good(seed), Limits{})
		require.Empty(t, r.Faults, "seed %d: %s", seed, r)
		require.Equal(t, producers*putsEach, r.Acknowledged)
		require.Equal(t, 1, r.Redelivered)
		require.Zero(t, r.AfterFinish)
		require.EqualValues(t, 2, r.AttemptsMax)
	}
}

// clean finds a put with the only answer OK, and its delivery.
func clean(h *History, skip int) (put, delivery int) {
	for i, p := range h.Puts {
		if len(p.Answers) != 1 {
			continue
		}
		if skip--; skip >= 0 {
			continue
		}
		return i, slices.IndexFunc(h.Deliveries, func(d Delivery) bool { return d.Body == p.Body })
	}
	panic("every put has a story")
}

// end is the first sequence that partition 0 does not have.
func end(h *History) (n int) {
	for _, d := range h.Deliveries {
		if p, _ := ParseID(d.ID); p.Partition == 0 {
			n = max(n, int(p.Sequence)+1)
		}
	}
	return n
}

// drop forgets every delivery of a body.
func drop(h *History, body string) {
	h.Deliveries = slices.DeleteFunc(h.Deliveries, func(d Delivery) bool { return d.Body == body })
}

// deliver appends a delivery.
func deliver(h *History, id, body string) {
	h.Deliveries = append(h.Deliveries, Delivery{ID: id, Body: body, Attempts: 1})
}

var corruptions = []struct {
	name    string
	corrupt func(*History)
	want    Kind
}{
	{"an acknowledged put never arrives", func(h *History) { p, _ := clean(h, 0); drop(h, h.Puts[p].Body) }, Lost},
	{"the last acknowledged put never arrives", func(h *History) { drop(h, h.Puts[len(h.Puts)-1].Body) }, Lost},
	{"nothing arrives", func(h *History) { h.Deliveries = nil }, Lost},
	{"one byte of a body changes", func(h *History) { h.Deliveries[5].Body += "x" }, Unexpected},
	{"a message nobody put", func(h *History) { deliver(h, id(0, end(h)), "ghost") }, Unexpected},
	{"a refused put arrives", func(h *History) {
		h.Puts = append(h.Puts, Put{Body: "no", Answers: []Answer{Refused}})
		deliver(h, id(0, end(h)), "no")
	}, RefusedSeen},
	{"a rolled-back put arrives", func(h *History) {
		h.Puts = append(h.Puts, Put{Body: "no", Answers: []Answer{RolledBack}})
		deliver(h, id(0, end(h)), "no")
	}, UndoneSeen},
	{"a put is stored twice without doubt", func(h *History) {
		p, _ := clean(h, 0)
		deliver(h, id(0, end(h)), h.Puts[p].Body)
	}, Duplicate},
	{"a rolled-back attempt is stored beside its retry", func(h *History) {
		p, _ := clean(h, 0)
		h.Puts[p].Answers = []Answer{RolledBack, OK}
		deliver(h, id(0, end(h)), h.Puts[p].Body)
	}, Duplicate},
	{"one doubt, three copies", func(h *History) {
		p, _ := clean(h, 0)
		h.Puts[p].Answers = []Answer{InDoubt, OK}
		deliver(h, id(0, end(h)), h.Puts[p].Body)
		deliver(h, id(0, end(h)), h.Puts[p].Body)
	}, Duplicate},
	{"an id gets another body", func(h *History) {
		_, d := clean(h, 0)
		_, e := clean(h, 1)
		deliver(h, h.Deliveries[d].ID, h.Deliveries[e].Body)
	}, Rewritten},
	{"a sequence is passed over", func(h *History) {
		h.Puts = append(h.Puts, Put{Body: "late", Answers: []Answer{OK}})
		deliver(h, id(0, end(h)+1), "late")
	}, Hole},
	{"the beginning is passed over", func(h *History) {
		h.Puts = append(h.Puts, Put{Body: "p9", Answers: []Answer{OK}})
		deliver(h, id(9, 1), "p9")
	}, Hole},
	{"two puts of one producer change places", func(h *History) {
		h.Puts = append(h.Puts, Put{Body: "a", Answers: []Answer{OK}}, Put{Body: "b", Answers: []Answer{OK}})
		at := end(h)
		deliver(h, id(0, at), "b")
		deliver(h, id(0, at+1), "a")
	}, Reordered},
	{"a put is stored before one acknowledged earlier, both in doubt once", func(h *History) {
		doubt := []Answer{InDoubt, OK}
		h.Puts = append(h.Puts, Put{Body: "a", Answers: doubt}, Put{Body: "b", Answers: doubt})
		at := end(h)
		deliver(h, id(0, at), "b")
		deliver(h, id(0, at+1), "b")
		deliver(h, id(0, at+2), "a")
	}, Reordered},
	{"a finished message comes again", func(h *History) {
		h.Deliveries = append(h.Deliveries, h.Deliveries[9])
	}, Redelivered},
	{"an id of stock nsqd's making", func(h *History) { h.Deliveries[0].ID = "not hex at all!!" }, Malformed},
	{"a put without an answer", func(h *History) { h.Puts = append(h.Puts, Put{Body: "?"}) }, Malformed},
	{"two puts of one body", func(h *History) { h.Puts = append(h.Puts, h.Puts[0]) }, Malformed},
}

func TestCorruptedHistoriesAreFlagged(t *testing.T) {
	for _, c := range corruptions {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(20) {
				h := good(seed)
				c.corrupt(&h)
				r := Check(h, Limits{})
				found := slices.ContainsFunc(r.Faults, func(f Fault) bool { return f.Kind == c.want })
				require.True(t, found, "seed %d: want %q, got %s", seed, c.want, r)
			}
		})
	}
}

func TestAllowedRedelivery(t *testing.T) {
	h := good(1)
	h.Deliveries = append(h.Deliveries, h.Deliveries[9])
	require.Empty(t, Check(h, Limits{Redelivered: 1}).Faults)
	require.Empty(t, Check(h, Limits{Redelivered: -1}).Faults)
}

func TestParseID(t *testing.T) {
	p, err := ParseID(id(1023, 1<<42-1))
	require.NoError(t, err)
	require.Equal(t, Place{Partition: 1023, Sequence: 1<<42 - 1}, p)
	for _, bad := range []string{"", "0", "00000000000000000", "000000000000000g"} {
		_, err := ParseID(bad)
		require.Error(t, err, bad)
	}
}
