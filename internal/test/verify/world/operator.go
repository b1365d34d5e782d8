package world

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/test/testkit/nsqtext"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// side is the topic that is deleted, undeleted and made anew.
const side = "side"

// deletions plays with a topic of its own when all is healed: what is answered 200 must be so soon after.
func (w *World) deletions() {
	w.operate("/topic/create?topic="+side+fmt.Sprintf("&replication_factor=%d", w.shape.replicas), w.there)
	w.operate("/channel/create?topic="+side+"&channel=c", nil)
	w.publish("old")
	w.absurd()
	w.operate("/topic/delete?topic="+side, w.gone)
	if w.shape.deleteGrace > 0 {
		w.operate("/v1/topic/undelete?topic="+side, func() bool { return w.there() && slices.Equal(w.consume("old"), []string{"old"}) })
		w.operate("/topic/delete?topic="+side, w.gone)
	}
	if w.rng("operator").IntN(2) == 0 { // else the put makes it
		w.operate("/topic/create?topic="+side, w.there)
	}
	w.publish("new")
	w.operate("/channel/create?topic="+side+"&channel=c", w.there)
	if got := w.consume("new"); !slices.Equal(got, []string{"new"}) {
		w.record(fmt.Sprintf("a topic made anew has %v", got), false)
	}
	w.operate("/topic/delete?topic="+side, w.gone)
}

// absurd asks for what no operator means: a success would be none.
func (w *World) absurd() {
	web := w.client("operator", net.IPv4(10, 0, 9, 1))
	defer web.CloseIdleConnections()
	now := time.Now().Unix() // as a place in the log it is far beyond the end
	for _, path := range []string{
		"/topic/create?topic=side0&partitions=0",
		fmt.Sprintf("/v1/channel/seek?topic=%s&channel=c&to=%d", side, now),
		fmt.Sprintf("/channel/create?topic=%s&channel=later&from=%d", side, now),
		"/pub?topic=" + side + "&defer=18446744073709551616",
	} {
		status, _, err := fetch(web, "http://"+w.machines[0].addr(httpPort).String()+path, "absurd")
		w.record(path, err != nil || status != http.StatusOK)
	}
	c, err := w.dial("operator", net.IPv4(10, 0, 9, 1), w.machines[0], nil)
	if err != nil {
		w.note("%v", err)
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(answerLimit)) // a closed connection fails at the read
	text := "DPUB " + side + " 18446744073709551616\n"
	_, _ = io.WriteString(c, text+nsqtext.Sized("absurd"))
	_, err = c.Response()
	w.record(text, err != nil)
}

// record notes an operation that was answered, and whether it is so.
func (w *World) record(text string, seen bool) {
	w.topics[0].h.Operations = append(w.topics[0].h.Operations, judge.Operation{Text: text, At: w.now(), Seen: seen})
}

// soon is how long an operation may take until every broker knows of it.
const soon = 5 * time.Second

// operate posts an operation, and records whether it has its effect.
func (w *World) operate(path string, effect func() bool) {
	if err := w.ask(path); err != nil {
		w.note("%v", err)
		return
	}
	at := w.now()
	seen := effect == nil
	for !seen && w.now() < at+soon {
		if seen = effect(); !seen {
			w.pause(200 * time.Millisecond)
		}
	}
	w.record(path, seen)
}

// there reports whether all brokers know the topic, gone whether none does.
func (w *World) there() bool { return w.known() == len(w.machines) }
func (w *World) gone() bool  { return w.known() == 0 }

func (w *World) known() (n int) {
	web := w.client("operator", net.IPv4(10, 0, 9, 1))
	defer web.CloseIdleConnections()
	for _, m := range w.machines {
		r, err := web.Get("http://" + m.addr(httpPort).String() + "/topics")
		if err != nil {
			return -1
		}
		text, _ := io.ReadAll(r.Body) // what is missing makes no JSON
		_ = r.Body.Close()
		var all struct{ Topics []string }
		if json.Unmarshal(text, &all) != nil {
			return -1
		}
		if slices.Contains(all.Topics, side) {
			n++
		}
	}
	return n
}

// publish puts one message.
func (w *World) publish(body string) {
	web := w.client("operator", net.IPv4(10, 0, 9, 1))
	defer web.CloseIdleConnections()
	for try := range 30 {
		m := w.machines[try%len(w.machines)]
		if status, _, err := fetch(web, "http://"+m.addr(httpPort).String()+"/pub?topic="+side, body); err == nil && status == http.StatusOK {
			return
		}
		w.pause(300 * time.Millisecond)
	}
}

// consume takes messages until one has the body, and for a second more, and returns what it got, each once.
func (w *World) consume(body string) (got []string) {
	web := w.client("operator", net.IPv4(10, 0, 9, 1))
	defer web.CloseIdleConnections()
	for until := w.now() + soon; w.now() < until; {
		url := "http://" + w.machines[0].addr(httpPort).String() + "/v1/consume?topic=" + side + "&channel=c&wait=500ms"
		status, text, err := fetch(web, url, "")
		var answer struct {
			Messages []struct{ Body, Receipt string }
		}
		if err != nil || status != http.StatusOK || json.Unmarshal([]byte(text), &answer) != nil {
			w.pause(200 * time.Millisecond)
			continue
		}
		for _, m := range answer.Messages {
			if got = append(got, strings.TrimSpace(m.Body)); m.Body == body {
				until = min(until, w.now()+time.Second)
			}
			_, _, _ = fetch(web, "http://"+w.machines[0].addr(httpPort).String()+"/v1/finish?topic="+side+"&channel=c&receipt="+m.Receipt, "") // else it comes again
		}
	}
	slices.Sort(got)
	return slices.Compact(got)
}
