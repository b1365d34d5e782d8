package main

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"
)

// finishEvery is how long finishes are gathered.
const finishEvery = 10 * time.Millisecond

// leaderShift is the position of the leader in an id; below it each leader has its own
// counter.
const leaderShift = 56

// subscribers are the connections that receive the messages of a leader, of all topics, in
// turn. Another member is listed once for each of its subscribers.
type subscribers struct {
	sync.Mutex
	all  []*peer
	turn uint64 // number of deliveries; also the id of a message
}

// add answers before the first message can be sent.
func (s *subscribers) add(p *peer) {
	s.Lock()
	defer s.Unlock()
	s.all = append(s.all, p)
	_, _ = p.w.WriteString(ok)
	_ = p.w.Flush()
}

// remove removes one entry of a peer, and reports whether there was one.
func (s *subscribers) remove(p *peer) bool {
	s.Lock()
	defer s.Unlock()
	i := slices.Index(s.all, p)
	if i >= 0 {
		s.all = slices.Delete(s.all, i, i+1)
	}
	return i >= 0
}

// next returns the next subscriber in turn; there must be one.
func (s *subscribers) next() *peer {
	s.turn++
	return s.all[s.turn%uint64(len(s.all))]
}

// flush sends the buffered messages.
func (s *subscribers) flush() {
	s.Lock()
	defer s.Unlock()
	for _, p := range s.all {
		_ = p.w.Flush()
	}
}

// deliver gives each message to the next subscriber.
func (s *subscribers) deliver(messages []byte) {
	s.Lock()
	defer s.Unlock()
	if len(s.all) == 0 {
		return
	}
	for len(messages) >= 4 {
		end := 4 + int(binary.BigEndian.Uint32(messages))
		s.next().message(s.turn, messages[4:end])
		messages = messages[end:]
	}
}

// pass gives one delivery of another member to the next subscriber.
func (s *subscribers) pass(delivery []byte) {
	s.Lock()
	defer s.Unlock()
	if len(s.all) > 0 {
		_, _ = s.next().w.Write(delivery)
	}
}

// relay is the connection to a leader on which another member subscribes for its own
// subscribers, receives their messages and returns their FINs. It opens with the first
// subscriber.
type relay struct {
	sync.Mutex
	*peer
	asked []*peer // have subscribed and wait for the leader's answer
}

// subscribe makes the connection a subscriber of this node, and of the leader.
func (n *node) subscribe(p *peer) error {
	if n.leader == "" {
		n.subscribers.add(p)
		return nil
	}
	n.relay.Lock()
	defer n.relay.Unlock()
	if n.relay.peer == nil {
		l, err := dial(n.leader)
		if err != nil {
			return err
		}
		n.relay.peer = newPeer(l)
		go n.relayAll() // ends with the connection
	}
	n.relay.asked = append(n.relay.asked, p)
	_, err := n.relay.Write([]byte("SUB chain\n"))
	return err
}

// unsubscribe ends one subscription, and reports whether there was one.
func (n *node) unsubscribe(p *peer) bool {
	if !n.subscribers.remove(p) {
		return false
	}
	if n.leader != "" {
		_, _ = n.relay.Write([]byte("CLS\n"))
	}
	return true
}

// relayAll passes on the leader's messages until the connection ends. Messages that arrive
// together are sent together.
func (n *node) relayAll() {
	for {
		frame, err := n.relay.sized()
		if err != nil {
			return
		}
		if string(frame) == ok {
			n.subscribers.add(n.relay.answered())
		} else {
			n.subscribers.pass(frame)
		}
		if !n.relay.another() {
			n.subscribers.flush()
		}
	}
}

// answered returns the peer that subscribed first.
func (r *relay) answered() *peer {
	r.Lock()
	defer r.Unlock()
	p := r.asked[0]
	r.asked = r.asked[1:]
	return p
}

// finishes gathers the ids of finished messages until they are written.
type finishes struct {
	sync.Mutex
	ids []byte
}

// finish accepts whole lines: the leader gathers their ids, the others pass them on.
func (n *node) finish(fins []byte) error {
	if n.leader != "" {
		_, err := n.relay.Write(fins)
		return err
	}
	f := &n.finished
	f.Lock()
	defer f.Unlock()
	if len(f.ids) == 0 {
		time.AfterFunc(finishEvery, n.putFinished)
	}
	for line := range slices.Chunk(fins, finLength) {
		f.ids = append(f.ids, line[len(fin):finLength-1]...)
	}
	return nil
}

// putFinished passes the gathered finishes to the loop, as a put.
func (n *node) putFinished() {
	n.finished.Lock()
	ids := n.finished.ids
	n.finished.ids = nil
	n.finished.Unlock()
	n.puts <- put{finished: ids}
}
