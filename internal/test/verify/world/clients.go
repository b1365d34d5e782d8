package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/api/msgstream"
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
	return w.dialAs(w.token(), client, ip, m, identify)
}

// dialAs connects a client that has a token, or "".
func (w *World) dialAs(token, client string, ip net.IP, m *machine, identify map[string]any) (*wire, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	open := w.net.dialer(client, ip)
	d := nsqclient.Dialer{Secret: token, Identify: identify, Open: func(ctx context.Context, _, address string) (net.Conn, error) { return open(ctx, address) }}
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
	sent   []letter // whose repeats are recognised
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

// letter is a put with what its text needs beside its bodies.
type letter struct {
	t       *topic
	put     *judge.Put
	headers map[string]any
	mixed   bool // every second message has no id
	tries   int
}

// put makes one put, and repeats it as its kind allows.
func (p *producer) put(t *topic) {
	switch r := p.random; {
	case r.IntN(6) == 0 && p.again():
	case r.IntN(8) == 0:
		p.pipeline(t)
	default:
		for _, l := range p.draw(t) {
			p.begin(l)
			p.try(l)
		}
	}
}

// draw makes one put, or one for each channel with the same body.
func (p *producer) draw(t *topic) []letter {
	r := p.random
	n := 1
	if r.IntN(4) == 0 {
		n = 2 + r.IntN(6)
	}
	l := letter{t: t, put: &judge.Put{Producer: p.n, Bodies: p.bodies(n)}, headers: map[string]any{}, tries: 1 + r.IntN(3)}
	only := func() {
		l.put.Only = t.channels[r.IntN(len(t.channels))].name
		l.headers["##only_channel"] = l.put.Only
	}
	if t.filtered() && r.IntN(2) == 0 {
		l.put.Tag = colors[r.IntN(len(colors))]
		l.headers["color"] = l.put.Tag
	}
	switch {
	case t.dedupe == "content":
		l.put.Once, l.tries = true, 5
		l.put.Bodies = l.put.Bodies[:1] // several messages have an identity each
		if t.only && r.IntN(4) == 0 {
			return p.toEach(l)
		}
	case t.dedupe == "id" && r.IntN(4) > 0:
		l.put.Once, l.tries = true, 5
		l.headers["##id"] = fmt.Sprintf("%d-%d", p.n, p.made)
		switch {
		case n > 1 && r.IntN(3) == 0:
			l.mixed, l.tries = true, 1
		case t.only && n == 1 && r.IntN(4) == 0:
			only()
		}
	case n == 1 && t.deferred && r.IntN(3) == 0:
		l.put.Tag, l.headers = "", map[string]any{}
		l.put.Defer = time.Duration(1+r.IntN(8_000)) * time.Millisecond
		if t.only && r.IntN(3) == 0 {
			only()
		}
	case n == 1 && t.only && r.IntN(4) == 0:
		only()
	}
	return []letter{l}
}

// toEach makes one put for each channel alone of a put.
func (p *producer) toEach(l letter) (all []letter) {
	for _, c := range l.t.channels {
		put := *l.put
		put.Only = c.name
		headers := maps.Clone(l.headers)
		headers["##only_channel"] = c.name
		all = append(all, letter{t: l.t, put: &put, headers: headers, tries: l.tries})
	}
	return all
}

// begin puts a letter on the record.
func (p *producer) begin(l letter) {
	p.w.lock(func() { l.t.h.Puts = append(l.t.h.Puts, l.put) })
	if l.put.Once && !l.mixed {
		p.sent = append(p.sent, l)
	}
}

// try sends a letter until an answer is OK.
func (p *producer) try(l letter) {
	for range l.tries {
		a := p.attempt(l)
		if a.Answer == judge.OK || p.w.closing() {
			return
		}
		if a.Answer == judge.InDoubt && l.put.Defer > 0 { // its time would begin again
			return
		}
		p.w.pause(time.Duration(p.random.IntN(300)) * time.Millisecond)
	}
}

// repeatable is how long after its first attempt a put is repeated: longer than some windows.
const repeatable = 220 * time.Second

// again sends a put that was sent before, whatever its answers were. It returns false if there is none whose repeats are recognised.
func (p *producer) again() bool {
	p.sent = slices.DeleteFunc(p.sent, func(l letter) bool { return p.w.now() > l.put.Attempts[0].Sent+repeatable })
	if len(p.sent) == 0 {
		return false
	}
	p.attempt(p.sent[p.random.IntN(len(p.sent))])
	return true
}

// pipeline sends several puts in one segment. Those whose repeats are recognised are then sent one by one.
func (p *producer) pipeline(t *topic) {
	var all []letter
	var text strings.Builder
	for _, b := range p.bodies(2 + p.random.IntN(7)) {
		l := letter{t: t, put: &judge.Put{Producer: p.n, Bodies: []string{b}, Once: t.dedupe == "content"}, tries: 4}
		p.begin(l)
		all = append(all, l)
		text.WriteString(command(l))
	}
	p.exchange(text.String(), all...)
	for _, l := range all {
		if l.put.Once && (!l.put.Acknowledged() || p.random.IntN(4) == 0) {
			p.try(l)
		}
	}
}

// attempt sends a put once.
func (p *producer) attempt(l letter) judge.Attempt {
	switch deferred := l.put.Defer > 0; {
	case deferred && len(l.headers) > 0:
		p.overHTTP(l, "/v1/topic/append?partition=0&")
	case !l.mixed && p.random.IntN(4) == 0 && (len(l.headers) == 0 || len(l.put.Bodies) == 1 && l.put.Only == "" && l.put.Tag == ""):
		p.overHTTP(l, "")
	default:
		p.exchange(command(l), l)
	}
	return l.put.Attempts[len(l.put.Attempts)-1]
}

// starts notes an attempt. One that is under way at the end of the history is in doubt. The function that it returns notes the answer.
func (p *producer) starts(l letter) func(judge.Attempt) {
	a := judge.Attempt{Sent: p.w.now(), Answer: judge.InDoubt, Answered: 1 << 62}
	p.w.lock(func() { l.put.Attempts = append(l.put.Attempts, a) })
	return func(b judge.Attempt) {
		b.Sent, b.Answered = a.Sent, p.w.now()
		p.w.lock(func() { l.put.Attempts[len(l.put.Attempts)-1] = b })
	}
}

// exchange sends the text of some puts over TCP, and reads their answers.
func (p *producer) exchange(text string, all ...letter) {
	var answered []func(judge.Attempt)
	for _, l := range all {
		answered = append(answered, p.starts(l))
	}
	open := p.open()
	if open == nil {
		_ = p.conn.SetDeadline(time.Now().Add(answerLimit))
		if _, err := io.WriteString(p.conn, text); err != nil {
			p.drop()
		}
	}
	for _, answer := range answered {
		switch {
		case open != nil:
			answer(judge.Attempt{Answer: judge.Refused, Why: open.Error()}) // nothing was sent
		case p.conn == nil:
			answer(judge.Attempt{Answer: judge.InDoubt, Why: "the connection ended"})
		default:
			answer(p.answer())
		}
	}
}

// open connects the producer if it is not, and now and then to another broker.
func (p *producer) open() error {
	if p.conn != nil && p.random.IntN(30) > 0 {
		return nil
	}
	p.drop()
	c, err := p.w.dial(p.name, p.ip, p.w.machines[p.random.IntN(len(p.w.machines))], nil)
	p.conn = c
	return err
}

// answer reads the answer to one put.
func (p *producer) answer() judge.Attempt {
	a := judge.Attempt{Answer: judge.InDoubt, Broker: p.conn.broker.name}
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
func command(l letter) string {
	name, put := l.t.name, l.put
	switch {
	case put.Defer > 0:
		return fmt.Sprintf("DPUB %s %d\n%s", name, put.Defer.Milliseconds(), nsqtext.Sized(put.Bodies[0]))
	case len(l.headers) > 0 && len(put.Bodies) == 1:
		return "PUB_EXT " + name + "\n" + nsqtext.Sized(nsqtext.Extended(l.headers, put.Bodies[0]))
	case len(l.headers) > 0:
		var all []string
		for i, b := range put.Bodies {
			h := maps.Clone(l.headers)
			if id, ok := h["##id"]; ok {
				h["##key"] = id
				if h["##id"] = fmt.Sprintf("%v.%d", id, i); l.mixed && i%2 == 1 {
					delete(h, "##id")
				}
			}
			all = append(all, nsqtext.Extended(h, b))
		}
		return "MPUB_EXT " + name + "\n" + nsqtext.Several(all)
	case len(put.Bodies) == 1:
		return "PUB " + name + "\n" + nsqtext.Sized(put.Bodies[0])
	}
	return "MPUB " + name + "\n" + nsqtext.Several(put.Bodies)
}

// overHTTP publishes a put: by /pub or /mpub, or by a path for records of the export format.
func (p *producer) overHTTP(l letter, path string) {
	answered := p.starts(l)
	m := p.w.machines[p.random.IntN(len(p.w.machines))]
	body, header := strings.Join(l.put.Bodies, "\n"), http.Header{}
	switch {
	case path != "":
		body = record(l)
	case len(l.put.Bodies) > 1:
		path = "/mpub?"
	default:
		path = "/pub?"
	}
	if id, ok := l.headers["##id"]; ok {
		header.Set("X-Nsq-Message-Id", fmt.Sprint(id))
	}
	if l.put.Defer > 0 && len(l.headers) == 0 { // a record has its own time
		path += fmt.Sprintf("defer=%d&", l.put.Defer.Milliseconds())
	}
	a := judge.Attempt{Answer: judge.InDoubt, Broker: m.name}
	status, text, err := post(p.web, "http://"+m.addr(httpPort).String()+path+"topic="+l.t.name, header, body)
	switch {
	case err != nil:
		a.Why = err.Error()
		if strings.Contains(a.Why, "connection refused") {
			a.Answer, a.Broker = judge.Refused, ""
		}
	case status == http.StatusOK:
		a.Answer = judge.OK
	case status == http.StatusGatewayTimeout || status == http.StatusInternalServerError:
		a.Why = text
	default:
		a.Answer, a.Why = judge.Refused, fmt.Sprint(status, " ", text)
	}
	answered(a)
}

// record is a put in the export format, as nsqctl import writes a deferred message of one channel.
func record(l letter) string {
	header, err := json.Marshal(l.headers)
	if err != nil {
		panic(err) // this program made the headers
	}
	m := msgstream.Message{DeliverAtNS: time.Now().Add(l.put.Defer).UnixNano(), Header: header, Body: []byte(l.put.Bodies[0])}
	b, _, err := msgstream.AppendMessage(nil, 0, &m)
	if err != nil {
		panic(err) // likewise
	}
	return string(b)
}

// fetch posts a body.
func fetch(c *http.Client, url, body string) (int, string, error) {
	return post(c, url, http.Header{}, body)
}

func post(c *http.Client, url string, header http.Header, body string) (int, string, error) {
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header = header
	resp, err := c.Do(r)
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
	return &http.Client{Timeout: answerLimit, Transport: bearer{w.token(), &http.Transport{
		DialContext:         func(ctx context.Context, _, address string) (net.Conn, error) { return dial(ctx, address) },
		MaxIdleConnsPerHost: 2, IdleConnTimeout: 5 * time.Second,
	}}}
}
