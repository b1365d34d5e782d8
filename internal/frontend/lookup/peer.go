package lookup

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"
)

const (
	dialTimeout     = time.Second
	exchangeTimeout = time.Second
	maxExchange     = 64 << 10 // bytes of one answer over TCP
	maxRetry        = 15 * time.Second
)

// peer is the connection to one nsqlookupd. All fields except the last group belong to its goroutine.
type peer struct {
	opts       Options
	address    string
	conn       net.Conn // nil = not connected
	in         *bufio.Reader
	registered map[registration]bool // sent on this connection
	lastUsed   time.Time             // last exchange
	failing    bool                  // the failure is already logged

	wake   chan struct{} // capacity 1
	http   atomic.Pointer[string]
	cancel context.CancelFunc
	done   chan struct{}
}

func startPeer(o Options, address string) *peer {
	ctx, cancel := context.WithCancel(context.Background())
	p := &peer{opts: o, address: address, wake: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{})}
	go p.run(ctx)
	return p
}

func (p *peer) run(ctx context.Context) {
	defer close(p.done)
	defer p.disconnect()
	timer := time.NewTimer(0)
	defer timer.Stop()
	retry := p.opts.Refresh
	for {
		if err := p.update(ctx); err == nil {
			retry, p.failing = p.opts.Refresh, false
			timer.Reset(p.opts.Refresh)
		} else {
			p.failed(err)
			timer.Reset(retry)
			retry = min(2*retry, maxRetry)
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-p.wake:
		}
	}
}

func (p *peer) failed(err error) {
	p.disconnect()
	if !p.failing {
		p.failing = true
		p.opts.Log.WithError(err).WithField("nsqlookupd", p.address).Warn("cannot register topics")
	}
}

func (p *peer) disconnect() {
	if p.conn != nil {
		_ = p.conn.Close()
	}
	p.conn, p.registered = nil, nil
}

// update sends the differences between the topics and the registrations of this connection.
func (p *peer) update(ctx context.Context) error {
	if p.conn == nil {
		if err := p.connect(ctx); err != nil {
			return err
		}
	}
	want := registrations(p.opts.Topics())
	for r := range p.registered {
		if !want[r] {
			if err := p.send("UNREGISTER", r); err != nil {
				return err
			}
			delete(p.registered, r)
		}
	}
	for r := range want {
		if !p.registered[r] {
			if err := p.send("REGISTER", r); err != nil {
				return err
			}
			p.registered[r] = true
		}
	}
	if time.Since(p.lastUsed) >= p.opts.Ping {
		return p.expectOK("PING\n")
	}
	return nil
}

func (p *peer) connect(ctx context.Context) error {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", p.address)
	if err != nil {
		return err
	}
	p.conn, p.in, p.registered = conn, bufio.NewReader(conn), map[registration]bool{}
	body, err := json.Marshal(p.opts.Identity)
	if err != nil {
		return err
	}
	request := binary.BigEndian.AppendUint32([]byte("  V1IDENTIFY\n"), uint32(len(body)))
	answer, err := p.exchange(append(request, body...))
	if err != nil {
		return err
	}
	var daemon Identity
	if err := json.Unmarshal(answer, &daemon); err != nil {
		return fmt.Errorf("lookup: IDENTIFY was answered %.200q", answer)
	}
	if !validEndpoint(daemon.BroadcastAddress, daemon.HTTPPort) { // it receives registrations, but is not asked for channels
		p.opts.Log.WithField("nsqlookupd", p.address).Warnf("nsqlookupd has no usable HTTP address, its channels are unknown: %.200q, port %d",
			daemon.BroadcastAddress, daemon.HTTPPort)
		return nil
	}
	address := net.JoinHostPort(daemon.BroadcastAddress, fmt.Sprint(daemon.HTTPPort))
	p.http.Store(&address)
	return nil
}

func (p *peer) send(verb string, r registration) error {
	return p.expectOK(strings.TrimRight(verb+" "+r.topic+" "+r.channel, " ") + "\n")
}

func (p *peer) expectOK(request string) error {
	answer, err := p.exchange([]byte(request))
	if err == nil && string(answer) != "OK" {
		err = fmt.Errorf("lookup: %q was answered %.200q", request, answer)
	}
	return err
}

// exchange sends a request and reads the answer: a length and that many bytes.
func (p *peer) exchange(request []byte) ([]byte, error) {
	p.lastUsed = time.Now()
	if err := p.conn.SetDeadline(p.lastUsed.Add(exchangeTimeout)); err != nil {
		return nil, err
	}
	if _, err := p.conn.Write(request); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(p.in, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxExchange {
		return nil, fmt.Errorf("lookup: answer of %d bytes", n)
	}
	answer := make([]byte, n)
	_, err := io.ReadFull(p.in, answer)
	return answer, err
}
