package client

import (
	"time"
)

// session is a producer's connection with the puts that were sent on it and are not answered.
// The broker answers in the order of the commands.
type session struct {
	p    *Producer
	conn *conn
	// Below are fields of the producer's lock.
	flight  []*put // in the order of the commands
	first   int    // the index of the oldest one
	retired bool   // it takes no further puts
	served  bool   // it has answered OK
}

// sendLocked queues a put. It returns false if the session takes none.
func (s *session) sendLocked(u *put) bool {
	if s.retired {
		return false
	}
	s.conn.mu.Lock()
	at, ok := s.conn.queueLocked(false, u.bytes, u.command.appendTo)
	s.conn.mu.Unlock()
	if !ok {
		return false
	}
	u.at, u.state, u.sentAt = at, putSent, time.Now()
	u.tries++
	s.flight = append(s.flight, u)
	return true
}

// oldest is the put that is answered next; nil = none.
func (s *session) oldest() *put {
	if s.first == len(s.flight) {
		return nil
	}
	return s.flight[s.first]
}

// pop removes the put that is answered; nil = none.
func (s *session) pop() *put {
	u := s.oldest()
	if u == nil {
		return nil
	}
	s.flight[s.first] = nil
	s.first++
	switch {
	case s.first == len(s.flight):
		s.flight, s.first = s.flight[:0], 0
	case s.first >= 1024 && s.first*2 >= len(s.flight):
		s.flight = append(s.flight[:0], s.flight[s.first:]...)
		s.first = 0
	}
	return u
}

// retireLocked stops taking puts: the next ones go to another broker.
func (s *session) retireLocked(why error) {
	if s.retired {
		return
	}
	s.retired = true
	if s.p.mu.session == s {
		s.p.mu.session = nil
	}
	if why != nil {
		s.p.c.failed(s.conn.addr, why)
	}
}

// read handles the answers until the connection ends; then it judges the puts without one.
func (s *session) read() {
	var err error
	ran := true // commands behind a fatal error did not run
	for err == nil {
		var kind int32
		var data []byte
		if kind, data, err = s.conn.next(); err != nil {
			break
		}
		switch kind {
		case frameResponse:
			s.stored()
		case frameError:
			if fatal, text := s.refused(string(data)); fatal {
				ran, err = false, &Error{Op: "publish", Broker: s.conn.addr, Text: text}
			}
		}
		if s.idleRetired() {
			err = errRetired
		}
	}
	if why := s.conn.reason(); why != nil {
		err = why // it closed the socket
	}
	s.conn.fail(err)
	s.over(err, ran)
}

// stored answers the oldest put with success.
func (s *session) stored() {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if !s.served {
		s.served = true
		s.p.c.succeeded(s.conn.addr)
	}
	if u := s.pop(); u != nil {
		s.p.completeLocked(u, nil)
	}
}

// refused judges an error frame, the answer to the oldest put.
func (s *session) refused(text string) (fatal bool, why string) {
	v := s.conn.o.judge(text)
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if v.elsewhere || v.fatal {
		var because error
		if v.elsewhere {
			because = &Error{Op: "publish", Broker: s.conn.addr, Text: text, kinds: v.kinds}
		}
		s.retireLocked(because)
	}
	u := s.pop()
	if u == nil || u.state == putDone {
		return v.fatal, text
	}
	doubt := v.kinds[0] == ErrInDoubt
	u.doubted = u.doubted || doubt
	u.last = &Error{Op: "publish", Topic: u.topic, Broker: s.conn.addr, Text: text, kinds: v.kinds}
	if (v.retry || doubt && s.p.repeatsDoubt(u)) && s.p.repeatLocked(u, retryPause(u.tries)) {
		return v.fatal, text
	}
	e := s.p.failureLocked(u, text, v.kinds[1:]...)
	e.Broker = s.conn.addr
	s.p.completeLocked(u, e)
	return v.fatal, text
}

// idleRetired reports whether the session was given up and nothing is left to be answered.
func (s *session) idleRetired() bool {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.retired && s.oldest() == nil
}

// over judges the puts that the connection's end left without an answer. A put that was never
// passed to the socket, or stood behind a fatal error, is not stored; any other is in doubt.
func (s *session) over(err error, ran bool) {
	p := s.p
	p.mu.Lock()
	defer p.mu.Unlock()
	var why error
	if ran && err != errRetired && !p.mu.over {
		why = err
	}
	s.retireLocked(why)
	delete(p.mu.sessions, s)
	for u := s.pop(); u != nil; u = s.pop() {
		if u.state == putDone {
			continue
		}
		doubt := ran && !s.conn.neverSent(u.at)
		u.doubted = u.doubted || doubt
		if doubt && !p.repeatsDoubt(u) || !p.repeatLocked(u, 0) {
			e := p.failureLocked(u, "the connection ended before the answer")
			e.Broker, e.cause = s.conn.addr, err
			if err == ErrClosed {
				e.kinds = append(e.kinds, ErrClosed)
				e.cause = nil
			}
			p.completeLocked(u, e)
		}
	}
}
