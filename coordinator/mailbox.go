package coordinator

import (
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// Completer is told the fate of one proposed put, exactly once. Complete runs
// on a core loop: it must not block.
type Completer interface {
	Complete(c replica.Completion)
}

// kind says what a piece of work asks of its loop.
type kind uint8

const (
	workEvent   kind = iota + 1 // step the machine with event
	workPropose                 // draft and done
	workChange                  // delta and ticket
	workSynced                  // token and err: the loop's own submission is durable
	workAdd                     // host a partition
	workRetire                  // stop hosting it; ack is closed afterwards
	workBarrier                 // ack is closed when all mail before it took effect
)

// work is one piece of a loop's mail. It is a struct, not an interface, so that
// a put costs no allocation here.
type work struct {
	kind   kind
	id     ident.Partition
	event  replica.Event
	draft  queue.Draft
	done   Completer
	at     time.Time // workPropose: when it was handed in
	delta  []byte
	ticket uint64 // workChange: of nsqd; workSynced: the token
	err    error
	hosted *hosted
	ack    chan struct{}
}

// mailbox is a loop's mail: many writers, one reader that takes everything at
// once. Writers never block; what bounds it is that puts are admitted by the
// edges and that replicas keep windows.
type mailbox struct {
	wake chan struct{} // capacity 1: there is mail
	mu   struct {
		sync.Mutex
		mail   []work
		closed bool
	}
}

func newMailbox() *mailbox { return &mailbox{wake: make(chan struct{}, 1)} }

// post adds mail and wakes the loop; false after close.
func (m *mailbox) post(w work) bool {
	first, open := m.add(w)
	if first {
		m.ring()
	}
	return open
}

// add adds mail and wakes nobody: loop.borrow must follow.
func (m *mailbox) add(w work) (first, open bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return false, false
	}
	m.mu.mail = append(m.mu.mail, w)
	return len(m.mu.mail) == 1, true
}

// waits reports whether there is mail.
func (m *mailbox) waits() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.mu.mail) > 0
}

// ring wakes the loop.
func (m *mailbox) ring() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// spareMail bounds the array kept for what comes next: when thousands of
// partitions change at once their mail takes megabytes.
const spareMail = 4096

// take swaps the mail for spare, whose array is used for what comes next.
func (m *mailbox) take(spare []work) []work {
	clear(spare)
	if cap(spare) > spareMail {
		spare = nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	mail := m.mu.mail
	m.mu.mail = spare[:0]
	return mail
}

// close refuses later mail and gives what is still there.
func (m *mailbox) close() []work {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.closed = true
	mail := m.mu.mail
	m.mu.mail = nil
	return mail
}
