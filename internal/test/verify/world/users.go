package world

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/nsqclient"
	"github.com/lockstepmq/lockstep/internal/test/testkit/nsqtext"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
)

// In some seeds the brokers enforce rights. All other clients then use the bootstrap token, and some users get rights and lose them
// while they publish to a topic of its own and consume it.

const (
	bootstrap = "the-bootstrap-token-of-the-simulated-world"
	guarded   = "guarded"
)

// guard makes the part of a process that knows the users; nil where rights are not enforced.
func (p *daemon) guard() (*access.Registry, *guard.Guard) {
	w := p.m.w
	if !w.shape.users {
		return nil, nil
	}
	log := w.log.WithField("on", p.m.name)
	users := access.NewRegistry(access.Options{Keys: metadata.Keys{Cluster: cluster}, Bootstrap: []byte(bootstrap), Log: log})
	return users, guard.New(guard.Options{Users: users, Log: log})
}

// awaitUsers returns when the users have been read.
func (p *daemon) awaitUsers(ctx context.Context) error {
	for p.users != nil {
		changed := p.users.Changed()
		if p.users.Policy() != nil {
			return nil
		}
		select {
		case <-changed:
		case <-p.mount.dead:
			return errDead
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// mayPublish is the rule of policies that users have set.
func (p *daemon) mayPublish(user, topic string) bool {
	policy := p.users.Policy()
	return policy != nil && policy.AllowUser(user, access.Publish, topic)
}

// token is what clients other than the users send.
func (w *World) token() string {
	if w.shape.users {
		return bootstrap
	}
	return ""
}

// bearer sends a token with each request.
type bearer struct {
	token string
	*http.Transport
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" && r.Header.Get("Authorization") == "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.Transport.RoundTrip(r)
}

// user is one user of the cluster with the operator that changes it. Its clients use its newest token, and occasionally an older one.
type user struct {
	w      *World
	t      *topic
	name   string
	n      int
	random *rand.Rand
	web    *http.Client // of the operator
	tokens []credential // the newest is the last one
	issued int
	marks  int
	unsure time.Duration // until then a request without an answer may be carried out
}

// credential is a token with the name by which the judge knows it.
type credential struct{ who, token string }

func (w *World) startUsers(start func(func())) {
	for i, t := range w.topics {
		if t.name != guarded {
			continue
		}
		for n := range 1 + w.rng("users").IntN(2) {
			name := fmt.Sprintf("user%d", n)
			u := &user{w: w, t: t, n: 100 + n, name: name, random: w.rng(name), web: w.client("operator of "+name, net.IPv4(10, 0, 9, byte(10+n)))}
			start(u.operate)
			for k := range 2 {
				part := fmt.Sprintf("%s client %d", name, k)
				ip := net.IPv4(10, byte(2+i), 200+byte(n), byte(k+1))
				c := &suspect{u: u, name: part, ip: ip, random: w.rng(part), web: w.client(part, ip)}
				start(c.run)
			}
		}
	}
}

// operate creates the user, and grants, revokes, rotates and deletes until the producers end; then it revokes everything.
func (u *user) operate() {
	defer u.web.CloseIdleConnections()
	for status := 0; status != http.StatusOK && status != http.StatusConflict && !u.w.over(); u.rest() {
		_, status, _ = u.call("/v1/user/create?name=root&admin=true") // before all other users
	}
	for !u.w.over() {
		if !u.create() {
			u.rest()
			continue
		}
		for range 1 + u.random.IntN(4) {
			rights := [][]string{{"publish"}, {"consume"}, {"publish", "consume"}}[u.random.IntN(3)]
			u.grant(rights)
			u.rest()
			if u.random.IntN(4) == 0 {
				u.rotate()
				u.rest()
			}
			u.revoke(rights)
			u.rest()
			if u.w.over() {
				break
			}
		}
		if u.random.IntN(2) == 0 {
			u.grant([]string{"publish", "consume"})
			u.rest()
		}
		u.remove()
	}
}

func (u *user) rest() { u.w.pause(time.Duration(u.random.IntN(1200)) * time.Millisecond) }

// late is how long after the operator has given a request up a broker may still carry it out, and so undo later changes.
const late = 10 * time.Second

// call posts to some broker.
func (u *user) call(path string) (broker string, status int, text string) {
	m := u.w.machines[u.random.IntN(len(u.w.machines))]
	status, text, err := fetch(u.web, "http://"+m.addr(httpPort).String()+path, "")
	if err != nil {
		status, text = 0, err.Error()
	}
	if status == 0 || status >= http.StatusInternalServerError {
		u.unsure = u.w.now() + late
	}
	return m.name, status, text
}

// create makes the user again, with a new token. If the answer is lost, the user may exist with a token that nobody knows.
func (u *user) create() bool {
	_, status, text := u.call("/v1/user/create?name=" + u.name)
	switch {
	case status == http.StatusConflict:
		u.remove()
		return false
	case status != http.StatusOK:
		return false
	}
	u.issue(text)
	return true
}

// issue keeps the token of an answer.
func (u *user) issue(text string) {
	var answer struct{ Token string }
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		panic(err) // the broker made it
	}
	u.issued++
	u.w.lock(func() { u.tokens = append(u.tokens, credential{fmt.Sprintf("%s#%d", u.name, u.issued), answer.Token}) })
}

func (u *user) newest() (c credential) {
	u.w.lock(func() {
		if len(u.tokens) > 0 {
			c = u.tokens[len(u.tokens)-1]
		}
	})
	return c
}

// grant adds rights. A request without an answer may have added them.
func (u *user) grant(rights []string) {
	who := u.newest().who
	var all []*judge.Grant
	u.w.lock(func() {
		for _, right := range rights {
			g := &judge.Grant{Who: who, Right: right, Asked: u.w.nowLocked(), Known: map[string]time.Duration{}, Gone: map[string]time.Duration{}}
			all = append(all, g)
		}
		u.t.h.Grants = append(u.t.h.Grants, all...)
	})
	_, status, _ := u.call(fmt.Sprintf("/v1/acl/grant?user=%s&topic=%s&rights=%s", u.name, guarded, strings.Join(rights, ",")))
	switch {
	case status == http.StatusOK:
		u.spread(all, known)
	case status >= http.StatusBadRequest && status < http.StatusInternalServerError: // a broker that does not know the user yet
		u.w.lock(func() {
			u.t.h.Grants = slices.DeleteFunc(u.t.h.Grants, func(g *judge.Grant) bool { return slices.Contains(all, g) })
		})
	}
}

func known(g *judge.Grant) map[string]time.Duration { return g.Known }
func gone(g *judge.Grant) map[string]time.Duration  { return g.Gone }

// revoke removes rights.
func (u *user) revoke(rights []string) {
	path := fmt.Sprintf("/v1/acl/revoke?user=%s&topic=%s&rights=%s", u.name, guarded, strings.Join(rights, ","))
	u.end(path, func(g *judge.Grant) bool { return slices.Contains(rights, g.Right) })
}

// remove deletes the user. Its tokens end.
func (u *user) remove() {
	u.end("/v1/user/delete?name="+u.name, func(*judge.Grant) bool { return true })
}

// end asks for the end of some grants, until a broker confirms it, and notes when each broker knows of it. A broker that does not know the
// user yet answers 404, as one does that has deleted it without that the answer came.
func (u *user) end(path string, of func(*judge.Grant) bool) {
	ending := u.withdraw(of)
	for missing := 0; missing < 2*len(u.w.machines) && !u.w.ended(); {
		broker, status, text := u.call(path)
		switch status {
		case http.StatusOK:
			u.spread(ending, gone)
			return
		case http.StatusNotFound:
			missing++
		default:
			u.w.note("%s at %s: %d %s", path, broker, status, text)
		}
		u.w.pause(200 * time.Millisecond)
	}
}

// withdraw notes that the end of grants of the user is asked for, and returns those that are meant.
func (u *user) withdraw(of func(*judge.Grant) bool) (all []*judge.Grant) {
	u.w.lock(func() {
		for _, g := range u.t.h.Grants {
			if strings.HasPrefix(g.Who, u.name+"#") && of(g) && len(g.Gone) < len(u.w.machines) {
				if g.Withdrawn == 0 {
					g.Withdrawn = u.w.nowLocked()
				}
				all = append(all, g)
			}
		}
	})
	return all
}

// rotate gives the user a new token with the same rights.
func (u *user) rotate() {
	was := u.newest().who
	ending := u.withdraw(func(g *judge.Grant) bool { return g.Who == was })
	asked := u.w.now()
	_, status, text := u.call("/v1/user/rotate?name=" + u.name)
	if status != http.StatusOK {
		u.remove() // the old token may be valid or not
		return
	}
	var all []*judge.Grant // that are surely in force
	u.w.lock(func() {
		for _, g := range ending {
			if g.Withdrawn < asked {
				continue // it has ended before
			}
			next := &judge.Grant{Who: fmt.Sprintf("%s#%d", u.name, u.issued+1), Right: g.Right, Asked: asked, Known: map[string]time.Duration{}, Gone: map[string]time.Duration{}}
			u.t.h.Grants = append(u.t.h.Grants, next)
			if len(g.Known) > 0 {
				all = append(all, next)
			}
		}
	})
	u.issue(text)
	u.spread(ending, gone)
	u.spread(all, known)
}

// spread notes when each broker knows of the change that was answered last. After it the operator changes a user that does nothing else:
// brokers learn of changes in their order.
func (u *user) spread(all []*judge.Grant, what func(*judge.Grant) map[string]time.Duration) {
	const patience = 3 * time.Second
	until := u.w.now() + patience
	if !u.mark(until) || u.w.now() < u.unsure {
		return
	}
	left := slices.Clone(u.w.machines)
	for ; len(left) > 0 && u.w.now() < until; u.w.pause(20 * time.Millisecond) {
		left = slices.DeleteFunc(left, func(m *machine) bool {
			if u.marked(m) < u.marks {
				return false
			}
			u.w.lock(func() {
				for _, g := range all {
					if _, before := what(g)[m.name]; !before {
						what(g)[m.name] = u.w.nowLocked()
					}
				}
			})
			return true
		})
	}
}

// mark writes the next number into the quota of the user for that.
func (u *user) mark(until time.Duration) bool {
	for u.w.now() < until {
		u.marks++
		_, status, _ := u.call(fmt.Sprintf("/v1/user/quota?name=mark-%s&topics=%d", u.name, u.marks))
		switch status {
		case http.StatusOK:
			return true
		case http.StatusNotFound:
			u.call("/v1/user/create?name=mark-" + u.name)
		default:
			u.w.pause(100 * time.Millisecond)
		}
	}
	return false
}

// marked returns the number that a broker knows.
func (u *user) marked(m *machine) int {
	r, err := u.web.Get("http://" + m.addr(httpPort).String() + "/v1/user/list")
	if err != nil {
		return 0
	}
	defer r.Body.Close()
	var all struct {
		Users []struct {
			Name  string
			Quota struct{ Topics int }
		}
	}
	if r.StatusCode != http.StatusOK || json.NewDecoder(r.Body).Decode(&all) != nil {
		return 0
	}
	for _, x := range all.Users {
		if x.Name == "mark-"+u.name && x.Quota.Topics != 1000 { // the default
			return x.Quota.Topics
		}
	}
	return 0
}

// suspect is a client of a user. It tries everything, whether the user has the right or not.
type suspect struct {
	u      *user
	name   string
	ip     net.IP
	random *rand.Rand
	web    *http.Client
	made   int
	held   []*judge.Delivery // whose receipts it has
}

func (c *suspect) run() {
	defer c.web.CloseIdleConnections()
	w := c.u.w
	for !w.ended() {
		x := c.pick()
		if x.token == "" {
			w.pause(50 * time.Millisecond)
			continue
		}
		m := w.machines[c.random.IntN(len(w.machines))]
		switch r := c.random.IntN(6); {
		case r < 2 && !w.over():
			c.publish(x, m)
		case r == 2 && !w.over():
			c.connection(x, m)
		case r == 3:
			c.poll(x, m)
		case r == 4:
			c.settle(x, m)
		default:
			c.subscribe(x, m)
		}
		w.pause(time.Duration(c.random.IntN(60)) * time.Millisecond)
	}
}

// pick returns the newest token, or sometimes an older one.
func (c *suspect) pick() (x credential) {
	c.u.w.lock(func() {
		if n := len(c.u.tokens); n > 0 {
			x = c.u.tokens[n-1]
			if c.random.IntN(4) == 0 {
				x = c.u.tokens[c.random.IntN(n)]
			}
		}
	})
	return x
}

// use notes a use.
func (c *suspect) use(x credential, right, text string, m *machine, sent time.Duration, accepted, denied, pushed bool) {
	w := c.u.w
	w.lock(func() {
		c.u.t.h.Uses = append(c.u.t.h.Uses, judge.Use{
			Who: x.who, Right: right, Text: c.name + ": " + text, Broker: m.name, Sent: sent, Answered: w.nowLocked(), Accepted: accepted, Denied: denied, Pushed: pushed,
		})
	})
}

// post sends a request with a token.
func (c *suspect) post(x credential, m *machine, path, body string) (int, string, error) {
	return post(c.web, "http://"+m.addr(httpPort).String()+path, http.Header{"Authorization": {"Bearer " + x.token}}, body)
}

func denied(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// put begins a put of one message.
func (c *suspect) put() *judge.Put {
	c.made++
	p := &judge.Put{Producer: c.u.n, Bodies: []string{fmt.Sprintf("%s-%d", c.name, c.made)}}
	w := c.u.w
	w.lock(func() {
		p.Attempts = []judge.Attempt{{Sent: w.nowLocked(), Answer: judge.InDoubt, Answered: 1 << 62}}
		c.u.t.h.Puts = append(c.u.t.h.Puts, p)
	})
	return p
}

// answer notes the answer of a broker to a put; "": the user may not publish.
func (c *suspect) answer(p *judge.Put, broker string, a judge.Answer, why string) {
	w := c.u.w
	w.lock(func() {
		p.Attempts[0].Answered, p.Attempts[0].Answer, p.Attempts[0].Broker, p.Attempts[0].Why = w.nowLocked(), a, broker, why
	})
}

func (c *suspect) publish(x credential, m *machine) {
	p := c.put()
	status, text, err := c.post(x, m, "/pub?topic="+guarded, p.Bodies[0])
	c.use(x, "publish", "/pub", m, p.Attempts[0].Sent, err == nil && status == http.StatusOK, err == nil && denied(status), false)
	switch {
	case err != nil || status == http.StatusGatewayTimeout || status == http.StatusInternalServerError:
	case status == http.StatusOK:
		c.answer(p, m.name, judge.OK, "")
	case denied(status):
		c.answer(p, "", judge.Refused, text)
	default:
		c.answer(p, m.name, judge.Refused, text)
	}
}

// dial opens a connection with a token; nil if it cannot.
func (c *suspect) dial(x credential, m *machine) *wire {
	w := c.u.w
	conn, err := w.dialAs(x.token, c.name, c.ip, m, map[string]any{"heartbeat_interval": 1000})
	if err != nil {
		return nil
	}
	return conn
}

// lost reports whether an error of a broker says that the right is missing.
func lost(text string) bool {
	return strings.HasPrefix(text, "E_UNAUTHORIZED") || strings.HasPrefix(text, "E_AUTH_F")
}

// connection publishes over TCP until it is refused.
func (c *suspect) connection(x credential, m *machine) {
	conn := c.dial(x, m)
	if conn == nil {
		return
	}
	defer conn.Close()
	w := c.u.w
	for until := w.now() + time.Duration(c.random.IntN(4000))*time.Millisecond; !w.over() && w.now() < until; {
		p := c.put()
		_ = conn.SetDeadline(time.Now().Add(answerLimit))
		if _, err := io.WriteString(conn, "PUB "+guarded+"\n"+nsqtext.Sized(p.Bodies[0])); err != nil {
			return
		}
		body, err := conn.Response()
		text := ""
		if err != nil {
			text = err.Error()
		}
		refusal, refused := err.(*nsqclient.Refusal)
		c.use(x, "publish", "PUB", m, p.Attempts[0].Sent, err == nil && string(body) == "OK", refused && lost(refusal.Text), false)
		switch {
		case err == nil:
			c.answer(p, m.name, judge.OK, "")
		case refused && lost(text):
			c.answer(p, "", judge.Refused, text)
			return
		case refused && !strings.Contains(text, "in doubt"):
			c.answer(p, m.name, judge.Refused, text)
			return
		default:
			return
		}
		w.pause(time.Duration(c.random.IntN(200)) * time.Millisecond)
	}
}

// poll consumes over HTTP, finishes some of the messages, and keeps receipts for later.
func (c *suspect) poll(x credential, m *machine) {
	w := c.u.w
	wait := time.Duration(c.random.IntN(1500)) * time.Millisecond
	sent := w.now()
	status, text, err := c.post(x, m, fmt.Sprintf("/v1/consume?topic=%s&channel=c0&max=3&wait=%s", guarded, wait), "")
	var answer struct {
		Messages []struct {
			ID, Receipt, Body string
			Attempts          int
		}
	}
	if err == nil && status == http.StatusOK {
		err = json.Unmarshal([]byte(text), &answer)
	}
	if err != nil {
		return
	}
	c.use(x, "consume", "/v1/consume", m, sent, status == http.StatusOK && len(answer.Messages) > 0, denied(status), true)
	for _, a := range answer.Messages {
		d := &judge.Delivery{Channel: "c0", Consumer: c.name, ID: a.ID, Body: a.Body, Attempts: a.Attempts, Receipt: a.Receipt, Epoch: epochOf(a.Receipt), Asked: sent, At: w.now()}
		w.lock(func() { c.u.t.h.Deliveries = append(c.u.t.h.Deliveries, d) })
		if c.held = append(c.held, d); len(c.held) > 8 {
			c.held = c.held[1:]
		}
	}
}

// settle finishes by a receipt, at any broker, whoever has got it.
func (c *suspect) settle(x credential, m *machine) {
	if len(c.held) == 0 {
		return
	}
	w, d := c.u.w, c.held[c.random.IntN(len(c.held))]
	sent := w.now()
	status, _, err := c.post(x, m, "/v1/finish?"+url.Values{"topic": {guarded}, "channel": {"c0"}, "receipt": {d.Receipt}}.Encode(), "")
	c.use(x, "consume", "/v1/finish", m, sent, err == nil && status == http.StatusOK, err == nil && denied(status), false)
	w.lock(func() {
		d.Settled = append(d.Settled, judge.Settlement{Verb: "finish", At: sent, Broker: m.name, Accepted: err == nil && status == http.StatusOK, Unknown: err != nil || status >= 500})
	})
}

// subscribe consumes over TCP for a while.
func (c *suspect) subscribe(x credential, m *machine) {
	conn := c.dial(x, m)
	if conn == nil {
		return
	}
	defer conn.Close()
	w := c.u.w
	sent := w.now()
	if _, err := fmt.Fprintf(conn, "SUB %s c0\nRDY 3\n", guarded); err != nil {
		return
	}
	subscribed := false
	for until := w.now() + time.Duration(c.random.IntN(5000))*time.Millisecond; !w.ended() && w.now() < until; {
		_ = conn.SetDeadline(time.Now().Add(4 * time.Second))
		kind, body, err := conn.Frame()
		switch {
		case err != nil:
			return
		case kind == nsqclient.FrameError:
			if !subscribed {
				c.use(x, "consume", "SUB", m, sent, false, lost(string(body)), false)
			}
			return
		case kind == nsqclient.FrameResponse && string(body) == nsqclient.Heartbeat:
			if _, err := io.WriteString(conn, "NOP\n"); err != nil {
				return
			}
		case kind == nsqclient.FrameResponse && !subscribed:
			subscribed = true
			c.use(x, "consume", "SUB", m, sent, true, false, false)
		case kind == nsqclient.FrameMessage:
			d := messageOf(body)
			d.Channel, d.Consumer, d.At, d.Asked = "c0", c.name, w.now(), w.now()
			d.Settled = []judge.Settlement{{Verb: "finish", At: w.now(), Unknown: true}}
			w.lock(func() { c.u.t.h.Deliveries = append(c.u.t.h.Deliveries, d) })
			c.use(x, "consume", "a delivery", m, sent, true, false, true)
			if _, err := io.WriteString(conn, "FIN "+d.ID+"\n"); err != nil {
				return
			}
		}
	}
}
