package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstepmq/lockstep/internal/test/testkit/nsqtext"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge"
	"github.com/lockstepmq/lockstep/internal/test/verify/judge/record"
)

// The times of producers that publish a message again until it is answered, and some later once more. The last attempt
// begins onceBudget after the first one. A broker may stand still with it for onceFrozen, and hold it for onceHold: all
// that is within the shortest window.
const (
	onceBudget = 25 * time.Second
	onceFrozen = 8 * time.Second
	onceHold   = 3 * time.Second
)

// onceWindows are the windows that topics get, from the shortest.
var onceWindows = []time.Duration{40 * time.Second, 60 * time.Second, 80 * time.Second}

const (
	onceEvery      = 100 * time.Millisecond // a producer sends
	onceFresh      = 6                      // messages a time, at most
	onceTogether   = 16                     // messages in a pipeline, at most
	onceAgain      = 4                      // one in so many messages is published again after OK
	onceLost       = 40                     // one in so many pipelines is left before it is answered
	onceBodyBytes  = 700
	onceProducers  = 2 // of each topic
	onceFileBytes  = 256 << 10
	onceKeptBytes  = 4 << 30
	oncePartitions = 4
)

// onceSurface is a way of publishing once.
type onceSurface string

const (
	byContents onceSurface = "content" // stock PUBs in pipelines, MPUBs, HTTP
	byIDs      onceSurface = "ids"     // X-Nsq-Message-Id, ##id
	byNumbers  onceSurface = "numbers" // ##seq
	inMixtures onceSurface = "mixed"   // batches in which some have ids; nothing is published again
)

// onceTopic is a topic of a surface. One of each surface keeps its log; retention runs in the other.
type onceTopic struct {
	name    string
	surface onceSurface
	kept    bool
}

var onceTopics = []onceTopic{
	{topic, byContents, true}, {"contents", byContents, false}, {"ids", byIDs, true}, {"ids2", byIDs, false},
	{"numbers", byNumbers, true}, {"numbers2", byNumbers, false}, {"mixed", inMixtures, true}, {"mixed2", inMixtures, false},
}

// letter is a message of a producer, or several that go under one id.
type letter struct {
	judge.Put
	number int
	key    string // "": none
	first  time.Time
	next   time.Time // of the next attempt
	acked  time.Time
}

func (l *letter) ok() bool { return !l.acked.IsZero() }

// over: it is too late for an attempt.
func (l *letter) over() bool { return time.Since(l.first) >= onceBudget }

// pen is a producer: its goroutine alone uses it.
type pen struct {
	o        *once
	of       onceTopic
	name     string
	random   *rand.Rand
	at       int // broker
	written  int // letters
	open     []*letter
	conns    map[string]*onceConn
	client   *http.Client
	finished []*letter
}

// once is what producers share.
type once struct {
	c       *cluster
	quit    chan struct{}
	wg      sync.WaitGroup
	puts    atomic.Int64 // attempts
	doubts  atomic.Int64
	refused atomic.Int64
	again   atomic.Int64 // after OK
	known   atomic.Int64 // repeats that were answered as such
	mu      sync.Mutex
	pens    []*pen
	faults  []string
	reasons map[string]int // of refusals and doubts
}

// note notes why a put was not answered OK.
func (o *once) note(why string) {
	if at := strings.Index(why, `Post "`); at >= 0 {
		why = why[:at] + "no answer over HTTP"
	}
	if at := strings.LastIndex(why, "failed "); at >= 0 {
		why = why[at+7:]
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reasons[why[:min(len(why), 60)]]++
}

// fault notes a broken promise.
func (o *once) fault(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.faults = append(o.faults, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// startOnce starts the producers.
func startOnce(c *cluster, seed uint64) *once {
	o := &once{c: c, quit: make(chan struct{}), reasons: map[string]int{}}
	for _, of := range onceTopics {
		for i := range onceProducers {
			p := &pen{o: o, of: of, name: fmt.Sprintf("%s-%d", of.name, i), random: rand.New(rand.NewPCG(seed, uint64(len(o.pens)))),
				conns: map[string]*onceConn{}, client: &http.Client{Timeout: onceAnswers}}
			o.pens = append(o.pens, p)
			o.wg.Go(p.write) // ends after stop
		}
	}
	return o
}

// stop ends the producers; each first settles what it has published.
func (o *once) stop() { close(o.quit); o.wg.Wait() }

func (p *pen) write() {
	defer p.hangUp()
	tick := time.NewTicker(onceEvery)
	defer tick.Stop()
	for ending := false; ; {
		select {
		case <-p.o.quit:
			ending = true
		default:
		}
		<-tick.C
		now := time.Now()
		p.open = slices.DeleteFunc(p.open, func(l *letter) bool {
			over := l.over() || p.of.surface == inMixtures
			if over {
				p.finished = append(p.finished, l)
			}
			return over
		})
		if ending && len(p.open) == 0 {
			return
		}
		var due []*letter
		for _, l := range p.open {
			if !l.next.IsZero() && now.After(l.next) && len(due) < onceTogether {
				due = append(due, l)
			}
		}
		if !ending && len(due) < onceTogether/2 {
			for range 1 + p.random.IntN(onceFresh) {
				l := p.letter()
				p.open, due = append(p.open, l), append(due, l)
			}
		}
		if len(due) > 0 {
			p.random.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
			p.send(due)
		}
	}
}

// letter is a new one.
func (p *pen) letter() *letter {
	l := &letter{Put: judge.Put{Once: true}, number: p.written, first: time.Now()}
	p.written++
	l.next = l.first
	n := 1
	switch {
	case p.of.surface == inMixtures:
		n, l.key = 2+p.random.IntN(8), fmt.Sprint(p.random.IntN(9))
	case p.of.surface == byIDs && l.number%8 == 7:
		n = 3
	case p.of.surface != byContents && l.number%4 == 0:
		l.key = fmt.Sprint(l.number % 9)
	}
	for i := range n {
		body := fmt.Sprintf("%s-%d.%d ", p.name, l.number, i)
		l.Bodies = append(l.Bodies, body+strings.Repeat("x", onceBodyBytes-len(body)))
	}
	return l
}

// id is that of a letter, or of one of its messages.
func (p *pen) id(l *letter) string { return fmt.Sprintf("%s-%d", p.name, l.number) }

// send publishes letters at one broker, in ways that the surface has.
func (p *pen) send(due []*letter) {
	b := p.o.c.brokers[p.at%len(p.o.c.brokers)]
	if p.random.IntN(3) == 0 {
		p.at++
	}
	var failed bool
	switch p.of.surface {
	case byContents:
		failed = p.contents(b, due)
	case byIDs:
		failed = p.ids(b, due)
	case byNumbers:
		failed = p.numbers(b, due)
	case inMixtures:
		failed = p.mixtures(b, due)
	}
	if failed {
		p.at++
	}
}

// took takes the answer to a letter.
func (p *pen) took(l *letter, a onceAnswer) (failed bool) {
	p.o.puts.Add(1)
	now := time.Now()
	if l.ok() {
		p.o.again.Add(1)
		if a.Answer == judge.OK && a.repeated {
			p.o.known.Add(1)
		}
	}
	l.Attempts = append(l.Attempts, judge.Attempt{Sent: a.sent, Answered: record.Now(), Answer: a.Answer, Why: a.why, Place: a.place, New: a.fresh})
	l.next = now.Add(50 * time.Millisecond)
	switch a.Answer {
	case judge.InDoubt:
		p.o.doubts.Add(1)
		p.o.note("in doubt: " + a.why)
	case judge.OK:
		if l.next = (time.Time{}); !l.ok() {
			l.acked = now
			if left := onceBudget - now.Sub(l.first); p.random.IntN(onceAgain) == 0 && left > 0 {
				l.next = now.Add(time.Duration(p.random.Int64N(int64(left))))
			}
		}
	default:
		p.o.refused.Add(1)
		p.o.note("refused: " + a.why)
	}
	return a.Answer != judge.OK
}

// overTCP sends commands, each of which has its letters.
func (p *pen) overTCP(b *broker, producer string, commands []string, of [][]*letter) (failed bool) {
	if slices.ContainsFunc(of, func(letters []*letter) bool { return slices.ContainsFunc(letters, (*letter).over) }) {
		return false // the others go the next time
	}
	conn := p.conns[b.name]
	if conn == nil {
		var err error
		if conn, err = dialOnce(b.tcp(), producer); err != nil {
			for _, letters := range of {
				for _, l := range letters {
					p.took(l, onceAnswer{Answer: judge.Refused, sent: record.Now(), why: "dial"})
				}
			}
			return true
		}
		p.conns[b.name] = conn
	}
	all, err := conn.pipeline(commands, p.random.IntN(onceLost) == 0)
	for i, a := range all {
		for _, l := range of[i] {
			x := a
			if len(of[i]) > 1 {
				x.place = ""
			}
			failed = p.took(l, x) || failed
		}
	}
	if err != nil {
		_ = conn.conn.Close()
		delete(p.conns, b.name)
	}
	return failed
}

func (p *pen) hangUp() {
	for _, conn := range p.conns {
		_ = conn.conn.Close()
	}
	p.client.CloseIdleConnections()
}

func (p *pen) http(b *broker, path string, q url.Values) string {
	q.Set("topic", p.of.name)
	return "http://" + b.http() + path + "?" + q.Encode()
}

// contents: most go in a pipeline of PUBs; what is published again, too, or in any other company.
func (p *pen) contents(b *broker, due []*letter) (failed bool) {
	bodies := make([]string, len(due))
	for i, l := range due {
		bodies[i] = l.Bodies[0]
	}
	if slices.ContainsFunc(due, (*letter).over) {
		return false
	}
	switch p.random.IntN(10) {
	case 0:
		return p.overTCP(b, "", []string{"MPUB " + p.of.name + "\n" + nsqtext.Several(bodies)}, [][]*letter{due})
	case 1:
		a := overHTTP(p.client, p.http(b, "/mpub", url.Values{}), "", strings.Join(bodies, "\n"))
		if len(due) > 1 {
			a.repeated = false
		}
		for _, l := range due {
			failed = p.took(l, a) || failed
		}
		return failed
	case 2:
		for i, l := range due {
			if failed {
				break // the others go the next time
			}
			failed = p.alone(b, l, "", bodies[i])
		}
		return failed
	}
	var commands []string
	var of [][]*letter
	for i, l := range due {
		commands, of = append(commands, "PUB "+p.of.name+"\n"+nsqtext.Sized(bodies[i])), append(of, []*letter{l})
	}
	return p.overTCP(b, "", commands, of)
}

// alone publishes a letter by HTTP, which says whether it is a repeat.
func (p *pen) alone(b *broker, l *letter, id, body string) (failed bool) {
	path, q := "/pub", url.Values{}
	if len(l.Bodies) > 1 {
		path, body = "/mpub", strings.Join(l.Bodies, "\n")
	}
	if l.key != "" {
		q.Set("key", l.key)
	}
	if l.over() {
		return false
	}
	a := overHTTP(p.client, p.http(b, path, q), id, body)
	a.fresh = a.Answer == judge.OK && !a.repeated
	return p.took(l, a)
}

// ids: those of letters with several messages go by HTTP alone.
func (p *pen) ids(b *broker, due []*letter) (failed bool) {
	var commands []string
	var of [][]*letter
	keyed := map[string][]*letter{}
	for _, l := range due {
		switch {
		case len(l.Bodies) > 1 || p.random.IntN(2) == 0:
			if !failed { // else it goes the next time
				failed = p.alone(b, l, p.id(l), l.Bodies[0])
			}
		case l.key != "":
			keyed[l.key] = append(keyed[l.key], l)
		default:
			commands, of = append(commands, p.command(l, "##id", p.id(l))), append(of, []*letter{l})
		}
	}
	for _, letters := range keyed {
		commands, of = p.grouped(commands, of, letters, func(l *letter) (string, any) { return "##id", p.id(l) })
	}
	if len(commands) > 0 {
		failed = p.overTCP(b, "", commands, of) || failed
	}
	return failed
}

// command is a PUB_EXT; its answer has the place of the message.
func (p *pen) command(l *letter, name string, value any) string {
	headers := map[string]any{name: value, "##trace_id": "1"}
	if l.key != "" {
		headers["##key"] = l.key
	}
	return "PUB_EXT " + p.of.name + "\n" + nsqtext.Sized(nsqtext.Extended(headers, l.Bodies[0]))
}

// grouped makes one MPUB_EXT of letters with one key, or PUB_EXTs.
func (p *pen) grouped(commands []string, of [][]*letter, letters []*letter, identity func(*letter) (string, any)) ([]string, [][]*letter) {
	if p.random.IntN(2) == 0 {
		for _, l := range letters {
			name, value := identity(l)
			commands, of = append(commands, p.command(l, name, value)), append(of, []*letter{l})
		}
		return commands, of
	}
	var messages []string
	for _, l := range letters {
		name, value := identity(l)
		messages = append(messages, nsqtext.Extended(map[string]any{name: value, "##key": l.key}, l.Bodies[0]))
	}
	return append(commands, "MPUB_EXT "+p.of.name+"\n"+nsqtext.Several(messages)), append(of, letters)
}

// numbers: the producer names itself, and its messages have numbers.
func (p *pen) numbers(b *broker, due []*letter) bool {
	var commands []string
	var of [][]*letter
	keyed := map[string][]*letter{}
	for _, l := range due {
		if l.key != "" {
			keyed[l.key] = append(keyed[l.key], l)
		} else {
			commands, of = append(commands, p.command(l, "##seq", l.number)), append(of, []*letter{l})
		}
	}
	for _, letters := range keyed {
		commands, of = p.grouped(commands, of, letters, func(l *letter) (string, any) { return "##seq", l.number })
	}
	return p.overTCP(b, p.name, commands, of)
}

// mixtures: half of the messages of a put have ids. A put is published once, whatever the answer.
func (p *pen) mixtures(b *broker, due []*letter) bool {
	var commands []string
	var of [][]*letter
	for _, l := range due {
		var messages []string
		for i, body := range l.Bodies {
			headers := map[string]any{"##key": l.key}
			if (i+l.number)%2 == 0 {
				headers["##id"] = fmt.Sprintf("%s.%d", p.id(l), i)
			}
			messages = append(messages, nsqtext.Extended(headers, body))
		}
		commands, of = append(commands, "MPUB_EXT "+p.of.name+"\n"+nsqtext.Several(messages)), append(of, []*letter{l})
	}
	failed := p.overTCP(b, "", commands, of)
	for _, l := range due {
		l.next = time.Time{}
	}
	return failed
}
