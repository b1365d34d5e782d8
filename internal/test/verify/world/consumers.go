package world

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/lockstepmq/lockstep/internal/frontend/httpapi/consume"
	"github.com/lockstepmq/lockstep/internal/nsqclient"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// consumer takes messages of one channel over TCP.
type consumer struct {
	w      *World
	name   string
	ip     net.IP
	t      *topic
	c      channel
	random *rand.Rand
	recent []*judge.Delivery // of the connection
}

func (c *consumer) run() {
	for !c.w.ended() {
		m := c.w.machines[c.random.IntN(len(c.w.machines))]
		conn, err := c.w.dial(c.name, c.ip, m, map[string]any{"heartbeat_interval": 1000})
		if err != nil {
			c.w.pause(200 * time.Millisecond)
			continue
		}
		c.session(conn)
		_ = conn.Close()
		c.forget()
		c.w.pause(time.Duration(c.random.IntN(200)) * time.Millisecond)
	}
}

// forget takes back what was promised last: a broker that writes to a connection that has ended may not read what is left in it.
func (c *consumer) forget() {
	const last = 500 * time.Millisecond
	c.w.lock(func() {
		for _, d := range c.recent {
			for i := range d.Settled {
				if d.Settled[i].At > c.w.nowLocked()-last {
					d.Settled[i].Delay = 0
				}
			}
		}
	})
	c.recent = nil
}

// session consumes until the connection ends.
func (c *consumer) session(conn *wire) {
	verb := "SUB"
	if c.c.ordered {
		verb = "SUB_ORDERED"
	}
	_, err := fmt.Fprintf(conn, "%s %s %s\nRDY %d\n", verb, c.t.name, c.c.name, 1+c.random.IntN(8))
	if err != nil {
		return
	}
	until := c.w.now() + time.Duration(1+c.random.IntN(20))*time.Second
	for !c.w.ended() && (c.w.closing() || c.w.now() < until) {
		_ = conn.SetDeadline(time.Now().Add(4 * time.Second)) // heartbeats are more frequent
		kind, body, err := conn.Frame()
		switch {
		case err != nil, kind == nsqclient.FrameError && !isSettle(string(body)):
			return
		case kind == nsqclient.FrameResponse && string(body) == nsqclient.Heartbeat:
			if _, err := io.WriteString(conn, "NOP\n"); err != nil {
				return
			}
		case kind == nsqclient.FrameMessage && !c.message(conn, body):
			return
		}
	}
	_, _ = io.WriteString(conn, "CLS\n") // the connection ends in any case
}

// isSettle reports whether an error frame is the answer to FIN, REQ or TOUCH, after which the connection lives on.
func isSettle(text string) bool {
	for _, p := range []string{"E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"} {
		if len(text) >= len(p) && text[:len(p)] == p {
			return true
		}
	}
	return false
}

// message handles one message in one of a consumer's ways.
func (c *consumer) message(conn *wire, frame []byte) bool {
	d := messageOf(frame)
	if d == nil {
		return false
	}
	if c.c.ordered && len(d.Body) > 12 { // 8 bytes of offset, 4 of size
		d.Body = d.Body[12:]
	}
	d.Channel, d.Consumer, d.At, d.Asked = c.c.name, c.name, c.w.now(), c.w.now()
	c.w.lock(func() { c.t.h.Deliveries = append(c.t.h.Deliveries, d) })
	c.recent = append(c.recent, d)
	r := c.random.IntN(100)
	if c.t.fails && r < 60 {
		r = 84 + r/4
	}
	if c.w.closing() {
		r = 0
	}
	delay := time.Duration(c.random.IntN(1500)) * time.Millisecond
	settle := func(verb, line string) bool {
		c.w.lock(func() {
			d.Settled = append(d.Settled, judge.Settlement{Verb: verb, At: c.w.nowLocked(), Delay: delay, Unknown: true})
		})
		_, err := io.WriteString(conn, line)
		return err == nil
	}
	if r >= 60 && r < 80 {
		c.w.pause(time.Duration(c.random.IntN(60)) * time.Millisecond)
	}
	switch {
	case r < 84:
		return settle("finish", "FIN "+d.ID+"\n")
	case r < 92:
		return settle("requeue", fmt.Sprintf("REQ %s %d\n", d.ID, delay.Milliseconds()))
	case r < 96:
		return settle("touch", "TOUCH "+d.ID+"\n") && settle("finish", "FIN "+d.ID+"\n")
	case r < 99:
		return true // it times out
	}
	return false // the consumer dies
}

// messageOf reads the frame of a message; nil if it is too short.
func messageOf(frame []byte) *judge.Delivery {
	const head = 8 + 2 + 16
	if len(frame) < head {
		return nil
	}
	return &judge.Delivery{ID: string(frame[10:26]), Body: string(frame[head:]), Attempts: int(binary.BigEndian.Uint16(frame[8:]))}
}

// worker takes messages of one channel over HTTP, and settles them by receipt at any broker.
type worker struct {
	w      *World
	name   string
	t      *topic
	c      channel
	random *rand.Rand
	web    *http.Client
}

func (x *worker) run() {
	defer x.web.CloseIdleConnections()
	for !x.w.ended() {
		m := x.w.machines[x.random.IntN(len(x.w.machines))]
		q := url.Values{"topic": {x.t.name}, "channel": {x.c.name}, "max": {fmt.Sprint(1 + x.random.IntN(5))}, "wait": {"1s"}}
		asked := x.w.now()
		status, text, err := fetch(x.web, "http://"+m.addr(httpPort).String()+"/v1/consume?"+q.Encode(), "")
		var answer struct {
			Messages []struct {
				ID, Receipt, Body string
				Attempts          int
			}
		}
		if err == nil && status == http.StatusOK {
			err = json.Unmarshal([]byte(text), &answer)
		}
		if err != nil || status != http.StatusOK {
			x.w.pause(200 * time.Millisecond)
			continue
		}
		var got []*judge.Delivery
		for _, a := range answer.Messages {
			got = append(got, &judge.Delivery{Epoch: epochOf(a.Receipt), Channel: x.c.name, Consumer: x.name, ID: a.ID, Body: a.Body, Attempts: a.Attempts, Receipt: a.Receipt, Asked: asked, At: x.w.now()})
		}
		x.w.lock(func() { x.t.h.Deliveries = append(x.t.h.Deliveries, got...) })
		for _, d := range got {
			x.handle(d)
		}
	}
}

// epochOf reads the epoch of the leader from a receipt.
func epochOf(text string) uint64 {
	r, err := consume.ParseReceipt(text)
	if err != nil {
		panic(err) // the broker made it
	}
	return uint64(r.Epoch)
}

func (x *worker) handle(d *judge.Delivery) {
	r := x.random.IntN(100)
	if x.t.fails && r < 50 {
		r += 50
	}
	if x.w.closing() {
		r = 0
	}
	switch {
	case r < 60:
		x.settle(d, "finish")
	case r < 70:
		x.settle(d, "requeue")
		if x.random.IntN(2) == 0 { // a second time, when it is over
			x.w.pause(time.Duration(x.random.IntN(1500)) * time.Millisecond)
			x.settle(d, []string{"finish", "touch", "requeue"}[x.random.IntN(3)])
		}
	case r < 80:
		x.settle(d, "touch")
		x.settle(d, "finish")
	case r < 90: // late: its timeout passes
		x.w.pause(msgTimeout + time.Duration(x.random.IntN(1500))*time.Millisecond)
		x.settle(d, "finish")
	}
}

// settle uses a receipt at any broker.
func (x *worker) settle(d *judge.Delivery, verb string) {
	m := x.w.machines[x.random.IntN(len(x.w.machines))]
	q := url.Values{"topic": {x.t.name}, "channel": {x.c.name}, "receipt": {d.Receipt}}
	delay := time.Duration(0)
	if verb == "requeue" && x.random.IntN(2) == 0 {
		delay = time.Duration(x.random.IntN(1500)) * time.Millisecond
		q.Set("delay", delay.String())
	}
	sent := x.w.now()
	status, _, err := fetch(x.web, "http://"+m.addr(httpPort).String()+"/v1/"+verb+"?"+q.Encode(), "")
	x.w.lock(func() {
		d.Settled = append(d.Settled, judge.Settlement{Verb: verb, At: sent, Delay: delay, Broker: m.name, Accepted: err == nil && status == http.StatusOK, Unknown: err != nil || status >= 500})
	})
}
