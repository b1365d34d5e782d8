package main

import (
	"encoding/binary"
	"net"
	"runtime"
	"slices"
	"sync"
)

const (
	waiting  = 1024    // puts that may wait in a node
	groupMax = 1 << 20 // bytes, but for the last put
)

// put is a PUB or MPUB. Its messages have their lengths before them, as in an
// MPUB, so that puts are joined by putting them behind each other.
type put struct {
	from     *peer
	messages []byte
	n        int
}

// node gathers puts, does with each group what there is to do, and answers.
type node struct {
	log     *log    // nil: it only passes on
	next    []*link // where each group goes too
	deliver bool    // to subscribers, in turn

	puts        chan put
	subscribers struct {
		sync.Mutex
		all []*peer
	}
	turn int // of the subscribers; the loop's
}

// serve takes connections and puts until something fails.
func (n *node) serve(l net.Listener) error {
	defer l.Close()
	n.puts = make(chan put, waiting)
	go func() { // ends with the listener, the connections with their clients
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go n.read(newPeer(c))
		}
	}()
	return n.loop()
}

// read takes the commands of one connection until it ends. It answers itself as
// long as the loop does not know of the connection.
func (n *node) read(p *peer) {
	defer p.Close()
	if _, err := p.r.Discard(len(magic)); err != nil {
		return
	}
	for {
		verb, err := p.verb()
		var m []byte
		switch {
		case err != nil:
		case verb == "IDENTIFY":
			if _, err = p.sized(); err == nil {
				_, err = p.Write([]byte(ok))
			}
		case verb == "SUB":
			_, err = p.Write([]byte(ok))
			n.subscribers.Lock()
			n.subscribers.all = append(n.subscribers.all, p)
			n.subscribers.Unlock()
			defer n.unsubscribe(p)
		case verb == "PUB":
			if m, err = p.sized(); err == nil {
				n.puts <- put{p, m, 1}
			}
		case verb == "MPUB":
			if m, err = p.sized(); err == nil && len(m) >= 8 {
				n.puts <- put{p, m[8:], int(binary.BigEndian.Uint32(m[4:]))}
			}
		}
		if err != nil {
			return
		}
	}
}

func (n *node) unsubscribe(p *peer) {
	n.subscribers.Lock()
	defer n.subscribers.Unlock()
	n.subscribers.all = slices.DeleteFunc(n.subscribers.all, func(s *peer) bool { return s == p })
}

// loop takes what waits, one group at a time. It gives way once before, so that
// who was woken at the same time can put too.
func (n *node) loop() error {
	var group []put
	var messages []byte
	for first := range n.puts {
		runtime.Gosched()
		group, messages = append(group[:0], first), append(messages[:0], first.messages...)
		count := first.n
		for len(n.puts) > 0 && len(messages) < groupMax {
			p := <-n.puts
			group, messages, count = append(group, p), append(messages, p.messages...), count+p.n
		}
		if err := n.commit(messages, count); err != nil {
			return err
		}
		for _, p := range group {
			_, _ = p.from.w.WriteString(ok)
		}
		for _, p := range group {
			_ = p.from.w.Flush() // once, if it has several; it may be gone
		}
		if n.deliver {
			n.deliverAll(messages)
		}
	}
	return nil
}

// commit writes the group while the others do.
func (n *node) commit(messages []byte, count int) error {
	for _, l := range n.next {
		if err := l.send(messages, count); err != nil {
			return err
		}
	}
	if n.log != nil {
		if err := n.log.append(messages); err != nil {
			return err
		}
	}
	for _, l := range n.next {
		if err := l.await(); err != nil {
			return err
		}
	}
	return nil
}

// deliverAll gives each message to the next subscriber; FINs are read and
// forgotten.
func (n *node) deliverAll(messages []byte) {
	n.subscribers.Lock()
	defer n.subscribers.Unlock()
	all := n.subscribers.all
	if len(all) == 0 {
		return
	}
	for len(messages) >= 4 {
		end := 4 + int(binary.BigEndian.Uint32(messages))
		all[n.turn%len(all)].message(messages[4:end])
		messages = messages[end:]
		n.turn++
	}
	for _, p := range all {
		_ = p.w.Flush()
	}
}
