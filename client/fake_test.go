package client

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fakeBroker is a broker in this process: one queue for each topic, without channels. Its
// answers to puts can be scripted.
type fakeBroker struct {
	l       net.Listener
	sockets bool
	gone    sync.WaitGroup
	token   string // "" = none is required
	noTouch bool   // TOUCH is refused
	timeout time.Duration
	// script gives the answer to the n-th put of the broker, counted from 1: "" stores and
	// answers OK; cut closes the connection; mute answers nothing; any other text is an error frame.
	script func(n int, p fakePut) string
	// subscribed gives the answer to SUB in the same way.
	subscribed func(line string) string

	mu struct {
		sync.Mutex
		puts  int
		lines []string // of all commands but NOP
		conns map[*fakeConn]struct{}
		queue map[string][]*fakeMessage
		seq   uint64
	}
}

const (
	cut   = "cut"
	mute  = "mute"
	store = "store and " // before cut and mute
)

type fakePut struct {
	line   string
	header map[string]any
	body   string
}

type fakeMessage struct {
	seq      uint64
	attempts uint16
	header   []byte
	body     []byte
}

func (m *fakeMessage) id() string { return fmt.Sprintf("%016x", m.seq) }

type fakeConn struct {
	f       *fakeBroker
	raw     net.Conn
	r       *bufio.Reader
	topic   string
	order   bool
	ready   int
	held    map[string]*fakeMessage
	refused bool // the last answer was a fatal error
	frozen  bool // writes nothing any more, heartbeats neither
	beat    time.Duration
	over    chan struct{}
}

// startFake serves in memory, or on a free port of loopback.
func startFake(configure ...func(*fakeBroker)) *fakeBroker {
	f := &fakeBroker{timeout: time.Minute}
	f.mu.conns, f.mu.queue = map[*fakeConn]struct{}{}, map[string][]*fakeMessage{}
	for _, c := range configure {
		c(f)
	}
	f.listen("")
	return f
}

// sockets has a broker serve on a port.
func sockets(f *fakeBroker) { f.sockets = true }

func (f *fakeBroker) listen(at string) {
	l := net.Listener(nil)
	if f.sockets {
		var err error
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			panic(err)
		}
	} else {
		l = listenMemory(at)
	}
	f.l = l
	f.gone.Go(func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			f.gone.Go(func() { f.serve(raw) })
		}
	})
}

func (f *fakeBroker) addr() string { return f.l.Addr().String() }

// stop closes the port and all connections. restart opens that of a broker in memory again.
func (f *fakeBroker) stop() {
	_ = f.l.Close()
	f.drop()
	f.gone.Wait()
}

func (f *fakeBroker) restart() { f.listen(f.addr()) }

// drop closes all connections.
func (f *fakeBroker) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.mu.conns {
		_ = c.raw.Close()
	}
}

// freeze makes all connections silent.
func (f *fakeBroker) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.mu.conns {
		c.frozen = true
	}
}

// announce asks the consumers to leave, as a broker that stops does.
func (f *fakeBroker) announce() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.mu.conns {
		if c.topic != "" {
			c.ready = 0
			c.sendLocked(frameResponse, []byte("CLOSE_WAIT"))
		}
	}
	_ = f.l.Close()
}

// commands returns the command lines that begin with a prefix.
func (f *fakeBroker) commands(prefix string) (found []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.mu.lines {
		if strings.HasPrefix(l, prefix) {
			found = append(found, l)
		}
	}
	return found
}

// bodies returns what is stored of a topic and not finished.
func (f *fakeBroker) bodies(topic string) (found []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.mu.queue[topic] {
		found = append(found, string(m.body))
	}
	return found
}

// puts is the number of puts that arrived.
func (f *fakeBroker) puts() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.puts
}

// publish stores a message without a client.
func (f *fakeBroker) publish(topic, header string, bodies ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range bodies {
		f.storeLocked(topic, []byte(header), []byte(b))
	}
	f.pumpLocked()
}

func (f *fakeBroker) storeLocked(topic string, header, body []byte) {
	f.mu.seq++
	f.mu.queue[topic] = append(f.mu.queue[topic], &fakeMessage{seq: f.mu.seq, header: header, body: body})
}

// pumpLocked delivers as far as the credit goes.
func (f *fakeBroker) pumpLocked() {
	for c := range f.mu.conns {
		for c.topic != "" && len(c.held) < c.ready && len(f.mu.queue[c.topic]) > 0 {
			m := f.mu.queue[c.topic][0]
			f.mu.queue[c.topic] = f.mu.queue[c.topic][1:]
			m.attempts++
			c.held[m.id()] = m
			b := binary.BigEndian.AppendUint64(nil, uint64(1e9+m.seq))
			b = binary.BigEndian.AppendUint16(b, m.attempts)
			b = append(b, m.id()...)
			header := m.header
			if c.order {
				header = []byte(`{"##epoch":7}`)
			}
			if len(header) == 0 {
				b = append(b, formNone)
			} else {
				b = binary.BigEndian.AppendUint16(append(b, formJSON), uint16(len(header)))
				b = append(b, header...)
			}
			b = binary.BigEndian.AppendUint64(b, m.seq)
			b = binary.BigEndian.AppendUint32(b, uint32(len(m.body)))
			c.sendLocked(frameMessage, append(b, m.body...))
		}
	}
}

func (c *fakeConn) sendLocked(kind int32, data []byte) {
	if c.frozen {
		return
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(data)))
	b = binary.BigEndian.AppendUint32(b, uint32(kind))
	_, _ = c.raw.Write(append(b, data...)) // a broken connection is found by the reader
}

func (f *fakeBroker) serve(raw net.Conn) {
	c := &fakeConn{f: f, raw: raw, r: bufio.NewReader(raw), held: map[string]*fakeMessage{}, over: make(chan struct{}), beat: time.Hour}
	f.mu.Lock()
	f.mu.conns[c] = struct{}{}
	f.mu.Unlock()
	defer func() {
		close(c.over)
		_ = raw.Close()
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.mu.conns, c)
		for _, m := range c.held {
			f.mu.queue[c.topic] = append(f.mu.queue[c.topic], m)
		}
		f.pumpLocked()
	}()
	magic := make([]byte, 4)
	if _, err := io.ReadFull(c.r, magic); err != nil || string(magic) != "  V2" {
		return
	}
	for c.command() {
	}
	if c.refused { // a close would destroy the error frame
		_ = raw.(interface{ CloseWrite() error }).CloseWrite()
		_, _ = io.Copy(io.Discard, c.r)
	}
}

// heartbeats are sent from IDENTIFY on.
func (c *fakeConn) heartbeats() {
	tick := time.NewTicker(c.beat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.f.mu.Lock()
			c.sendLocked(frameResponse, []byte("_heartbeat_"))
			c.f.mu.Unlock()
		case <-c.over:
			return
		}
	}
}

func (c *fakeConn) body() []byte {
	var size [4]byte
	if _, err := io.ReadFull(c.r, size[:]); err != nil {
		return nil
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, _ = io.ReadFull(c.r, b) // the end of the connection is found at the next line
	return b
}

// command runs one command; false ends the connection.
func (c *fakeConn) command() bool {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return false
	}
	line = strings.TrimSuffix(line, "\n")
	words := strings.Split(line, " ")
	var body []byte
	switch words[0] {
	case "IDENTIFY", "AUTH", "PUB", "DPUB", "PUB_EXT", "MPUB", "MPUB_EXT":
		if body = c.body(); body == nil {
			return false
		}
	}
	f := c.f
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.pumpLocked()
	if words[0] != "NOP" {
		f.mu.lines = append(f.mu.lines, line)
	}
	say := func(text string) bool { c.sendLocked(frameResponse, []byte(text)); return true }
	fail := func(text string) bool {
		c.sendLocked(frameError, []byte(text))
		c.refused = true
		return false
	}
	switch words[0] {
	case "IDENTIFY":
		var id struct {
			Heartbeat  int64 `json:"heartbeat_interval"`
			MsgTimeout int64 `json:"msg_timeout"`
		}
		_ = json.Unmarshal(body, &id)
		timeout := f.timeout.Milliseconds()
		if id.MsgTimeout > 0 {
			timeout = id.MsgTimeout
		}
		c.beat = time.Duration(id.Heartbeat) * time.Millisecond
		f.gone.Go(c.heartbeats)
		return say(fmt.Sprintf(`{"max_rdy_count":2500,"msg_timeout":%d,"max_msg_timeout":900000,"auth_required":%t}`, timeout, f.token != ""))
	case "AUTH":
		if string(body) != f.token {
			return fail("E_AUTH_FAILED AUTH failed")
		}
		return say(`{"identity":"x","identity_url":"","permission_count":1}`)
	case "PUB", "DPUB", "PUB_EXT", "MPUB", "MPUB_EXT":
		return c.putLocked(words, line, body)
	case "SUB_ADVANCED", "SUB_ORDERED":
		if f.subscribed != nil {
			if text := f.subscribed(line); text != "" {
				return fail(text)
			}
		}
		c.topic, c.order = words[1], words[0] == "SUB_ORDERED"
		return say("OK")
	case "RDY":
		c.ready, _ = strconv.Atoi(words[1])
	case "CLS":
		c.ready = 0
		return say("CLOSE_WAIT")
	case "FIN", "REQ":
		m := c.held[words[1]]
		if m == nil {
			c.sendLocked(frameError, []byte("E_"+words[0]+"_FAILED "+words[0]+" "+words[1]+" failed ID not in flight"))
			return true
		}
		delete(c.held, words[1])
		if words[0] == "REQ" {
			f.mu.queue[c.topic] = append(f.mu.queue[c.topic], m)
		}
	case "TOUCH":
		if f.noTouch || c.held[words[1]] == nil {
			c.sendLocked(frameError, []byte("E_TOUCH_FAILED TOUCH "+words[1]+" failed ID not in flight"))
		}
	case "NOP":
	default:
		return fail("E_INVALID invalid command " + words[0])
	}
	return true
}

// putLocked stores and answers a put as the script says.
func (c *fakeConn) putLocked(words []string, line string, body []byte) bool {
	f := c.f
	f.mu.puts++
	type one struct{ header, body []byte }
	read := func(raw []byte) one {
		if !strings.HasSuffix(words[0], "_EXT") {
			return one{body: raw}
		}
		n := 2 + int(binary.BigEndian.Uint16(raw))
		return one{raw[2:n], raw[n:]}
	}
	all := []one{}
	if strings.HasPrefix(words[0], "M") {
		for rest := body[4:]; len(rest) > 0; {
			n := 4 + int(binary.BigEndian.Uint32(rest))
			all = append(all, read(rest[4:n]))
			rest = rest[n:]
		}
	} else {
		all = append(all, read(body))
	}
	p := fakePut{line: line, body: string(all[0].body)}
	_ = json.Unmarshal(all[0].header, &p.header) // nil without one
	how := ""
	if f.script != nil {
		how = f.script(f.mu.puts, p)
	}
	then, stores := strings.CutPrefix(how, store)
	if how == "" || stores {
		for _, o := range all {
			f.storeLocked(words[1], o.header, o.body)
		}
	}
	switch then {
	case "":
		c.sendLocked(frameResponse, []byte("OK"))
	case cut:
		return false
	case mute:
	default:
		c.sendLocked(frameError, []byte(then))
		c.refused = !strings.Contains(then, "_FAILED ") || strings.HasPrefix(then, "E_AUTH")
		return !c.refused
	}
	return true
}
