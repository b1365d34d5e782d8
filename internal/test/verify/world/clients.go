package world

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/nsqclient"
	"github.com/lockstepmq/lockstep/internal/test/testkit/nsqtext"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

const answerLimit = putHold + 2*time.Second // a producer gives up the connection after that

// wire is a connection of a client that speaks NSQ.
type wire struct {
	*nsqclient.Conn
	broker *machine
}

// dial connects a client to a broker.
func (w *World) dial(client string, ip net.IP, m *machine, identify map[string]any) (*wire, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	open := w.net.dialer(client, ip)
	d := nsqclient.Dialer{Identify: identify, Open: func(ctx context.Context, _, address string) (net.Conn, error) { return open(ctx, address) }}
	c, err := d.Dial(ctx, m.addr(tcpPort).String(), answerLimit)
	if err != nil {
		return nil, err
	}
	return &wire{c, m}, nil
}

// producer puts messages on topics of the world, one put after the other.
type producer struct {
	w      *World
	n      int
	name   string
	ip     net.IP
	random *rand.Rand
	conn   *wire
	web    *http.Client
	made   int
}

func (p *producer) run() {
	defer p.drop()
	defer p.web.CloseIdleConnections()
	for !p.w.over() {
		p.w.pause(time.Duration(p.random.Int64N(int64(2 * p.w.shape.putEvery))))
		t := p.w.topics[p.random.IntN(len(p.w.topics))]
		p.put(t)
	}
}

func (p *producer) drop() {
	if p.conn != nil {
		_ = p.conn.Close()
		p.conn = nil
	}
}

// bodies makes new bodies.
func (p *producer) bodies(n int) (out []string) {
	for range n {
		p.made++
		size := 0
		switch p.random.IntN(20) {
		case 0:
			size = p.random.IntN(20_000)
		case 1, 2, 3:
			size = p.random.IntN(1_000)
		}
		out = append(out, fmt.Sprintf("p%d-%d.%s", p.n, p.made, strings.Repeat("x", size)))
	}
	return out
}

// put makes one put, and repeats it as its kind allows.
func (p *producer) put(t *topic) {
	r := p.random
	put := &judge.Put{Producer: p.n}
	n := 1
	if r.IntN(4) == 0 {
		n = 2 + r.IntN(6)
	}
	put.Bodies = p.bodies(n)
	headers := map[string]any{}
	tries := 1 + r.IntN(3)
	switch {
	case t.dedupe == "content":
		put.Once = true
		tries = 5
		if n > 1 { // several messages have an identity each
			put.Bodies, n = put.Bodies[:1], 1
		}
	case t.dedupe == "id" && r.IntN(4) > 0:
		put.Once = true
		tries = 5
		headers["##id"] = fmt.Sprintf("%d-%d", p.n, p.made)
	case n == 1 && t.deferred && r.IntN(3) == 0:
		put.Defer = time.Duration(1+r.IntN(8_000)) * time.Millisecond
	case n == 1 && t.only && r.IntN(4) == 0:
		put.Only = t.channels[r.IntN(len(t.channels))].name
		headers["##only_channel"] = put.Only
	}
	p.w.lock(func() { t.h.Puts = append(t.h.Puts, put) })
	for range tries {
		a := p.attempt(t, put, headers)
		p.w.lock(func() { put.Attempts[len(put.Attempts)-1] = a })
		if a.Answer == judge.OK || p.w.closing() {
			return
		}
		if a.Answer == judge.InDoubt && put.Defer > 0 { // its time would begin again
			return
		}
		p.w.pause(time.Duration(p.random.IntN(300)) * time.Millisecond)
	}
}

// attempt sends a put once. An attempt that is in progress at the end of the history is in doubt.
func (p *producer) attempt(t *topic, put *judge.Put, headers map[string]any) (a judge.Attempt) {
	a = judge.Attempt{Sent: p.w.now(), Answer: judge.InDoubt, Answered: 1 << 62}
	p.w.lock(func() { put.Attempts = append(put.Attempts, a) })
	defer func() { a.Answered = p.w.now() }()
	if len(headers) == 0 && put.Defer == 0 && p.random.IntN(4) == 0 {
		return p.overHTTP(a, t, put)
	}
	if p.conn == nil || p.random.IntN(30) == 0 {
		p.drop()
		c, err := p.w.dial(p.name, p.ip, p.w.machines[p.random.IntN(len(p.w.machines))], nil)
		if err != nil {
			a.Answer, a.Why = judge.Refused, err.Error() // nothing was sent
			return a
		}
		p.conn = c
	}
	a.Broker = p.conn.broker.name
	_ = p.conn.SetDeadline(time.Now().Add(answerLimit))
	if _, err := io.WriteString(p.conn, command(t, put, headers)); err != nil {
		p.drop()
		a.Why = err.Error()
		return a
	}
	answer, err := p.conn.Response()
	refusal, refused := errors.AsType[*nsqclient.Refusal](err)
	switch {
	case refused && !strings.Contains(refusal.Text, "in doubt"):
		a.Answer, a.Why = judge.Refused, refusal.Text
		if !strings.Contains(a.Why, "PUB_FAILED") { // the broker closes the connection
			p.drop()
		}
	case refused:
		a.Why = refusal.Text
	case err != nil:
		p.drop()
		a.Why = err.Error()
	case strings.HasPrefix(string(answer), "OK"):
		a.Answer = judge.OK
	default:
		a.Why = string(answer)
	}
	return a
}

// command is the text of a put.
func command(t *topic, put *judge.Put, headers map[string]any) string {
	switch {
	case put.Defer > 0:
		return fmt.Sprintf("DPUB %s %d\n%s", t.name, put.Defer.Milliseconds(), nsqtext.Sized(put.Bodies[0]))
	case len(headers) > 0 && len(put.Bodies) == 1:
		return "PUB_EXT " + t.name + "\n" + nsqtext.Sized(nsqtext.Extended(headers, put.Bodies[0]))
	case len(headers) > 0:
		var all []string
		for i, b := range put.Bodies {
			h := map[string]any{"##key": fmt.Sprint(headers["##id"])}
			for k, v := range headers {
				h[k] = v
			}
			h["##id"] = fmt.Sprintf("%v.%d", headers["##id"], i)
			all = append(all, nsqtext.Extended(h, b))
		}
		return "MPUB_EXT " + t.name + "\n" + nsqtext.Several(all)
	case len(put.Bodies) == 1:
		return "PUB " + t.name + "\n" + nsqtext.Sized(put.Bodies[0])
	}
	return "MPUB " + t.name + "\n" + nsqtext.Several(put.Bodies)
}

// overHTTP publishes a put without headers.
func (p *producer) overHTTP(a judge.Attempt, t *topic, put *judge.Put) judge.Attempt {
	m := p.w.machines[p.random.IntN(len(p.w.machines))]
	a.Broker = m.name
	url := "http://" + m.addr(httpPort).String() + "/pub?topic=" + t.name
	if len(put.Bodies) > 1 {
		url = "http://" + m.addr(httpPort).String() + "/mpub?topic=" + t.name
	}
	status, text, err := fetch(p.web, url, strings.Join(put.Bodies, "\n"))
	switch {
	case err != nil:
		a.Why = err.Error()
		if strings.Contains(a.Why, "connection refused") {
			a.Answer = judge.Refused
		}
	case status == http.StatusOK:
		a.Answer = judge.OK
	case status == http.StatusGatewayTimeout || status == http.StatusInternalServerError:
		a.Why = text
	default:
		a.Answer, a.Why = judge.Refused, fmt.Sprint(status, " ", text)
	}
	return a
}

// fetch posts a body.
func fetch(c *http.Client, url, body string) (int, string, error) {
	resp, err := c.Post(url, "application/octet-stream", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// client makes an HTTP client of a machine of the world.
func (w *World) client(name string, ip net.IP) *http.Client {
	dial := w.net.dialer(name, ip)
	return &http.Client{Timeout: answerLimit, Transport: &http.Transport{
		DialContext:         func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, address) },
		MaxIdleConnsPerHost: 2, IdleConnTimeout: 5 * time.Second,
	}}
}
