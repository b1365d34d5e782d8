package rpc

import (
	"net"
	"sync"

	"github.com/lockstepmq/lockstep/internal/concurrency"
)

const (
	burstBytes    = 1 << 20 // limit of the highest priority in one write
	frameOverhead = 64      // size of an empty frame in its window
)

// outFrame is an outgoing frame. The sender fills it; push passes it to the outbox.
type outFrame struct {
	kind    kind
	class   Class
	header  []byte // encoded; reused with the frame
	payload [][]byte
	whole   int // payload bytes
	cost    int // bytes in the window
	sent    int // payload bytes taken so far
	skip    int // bytes of payload[0] taken so far
}

// frames are reused after their last byte was taken.
var frames = sync.Pool{New: func() any { return new(outFrame) }}

func newOutFrame(k kind, c Class, payload [][]byte) *outFrame {
	f := frames.Get().(*outFrame)
	f.kind, f.class, f.payload = k, c, payload
	for _, b := range payload {
		f.whole += len(b)
	}
	return f
}

func (f *outFrame) free() {
	*f = outFrame{header: f.header[:0]}
	frames.Put(f)
}

// outbox queues the frames for one connection, by priority. Any goroutine pushes; the connection's writer takes.
type outbox struct {
	windows windows
	wake    concurrency.Edge // there is something to take

	mu struct {
		sync.Mutex
		queues [levels]fifo
		queued [classes]int // bytes per class
		closed bool
	}
}

func newOutbox(w windows) *outbox { return &outbox{windows: w, wake: concurrency.NewEdge()} }

// push queues f and wakes the writer, or frees it. Errors: ErrDown, ErrWindow, errTooLarge.
func (o *outbox) push(f *outFrame) error {
	err := o.add(f)
	if err == nil {
		o.wake.Notify()
	}
	return err
}

// add is push without waking the writer.
func (o *outbox) add(f *outFrame) error {
	err := o.tryPush(f)
	if err != nil {
		f.free()
	}
	return err
}

func (o *outbox) tryPush(f *outFrame) error {
	if len(f.header) > MaxHeader || f.whole > MaxPayload {
		return errTooLarge
	}
	f.cost = frameOverhead + len(f.header) + f.whole
	o.mu.Lock()
	defer o.mu.Unlock()
	queued := &o.mu.queued[f.class]
	switch {
	case o.mu.closed:
		return ErrDown
	case f.class != 0 && *queued > 0 && *queued+f.cost > o.windows[f.class]:
		return ErrWindow
	}
	*queued += f.cost
	o.mu.queues[f.class.level()].push(f)
	return nil
}

// take fills an empty burst: with all frames of the highest priority up to burstBytes, and with about a piece of each
// lower one, so that later frames never wait long behind them. A lower priority is taken whenever nothing above it is
// left, so steady small traffic slows it down but does not starve it. It reports whether there was any frame.
func (o *outbox) take(b *burst) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for level := range levels {
		limit := burstBytes
		if level > 0 {
			limit = pieceBytes
		}
		b.base = b.total
		q := &o.mu.queues[level]
		for f := q.front(); f != nil && b.fits(f, limit); f = q.front() {
			if b.add(f) {
				o.mu.queued[f.class] -= f.cost
				q.pop().free()
			}
		}
		if q.front() != nil {
			break // never overtake
		}
	}
	b.seal()
	b.left = b.iov
	return b.total > 0
}

// close drops all frames and refuses further ones.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.closed = true
	o.mu.queues = [levels]fifo{}
}

// fifo is a queue of frames.
type fifo struct {
	frames []*outFrame
	head   int
}

func (q *fifo) push(f *outFrame) {
	if q.head > 64 && q.head*2 > len(q.frames) {
		n := copy(q.frames, q.frames[q.head:])
		clear(q.frames[n:])
		q.frames, q.head = q.frames[:n], 0
	}
	q.frames = append(q.frames, f)
}

func (q *fifo) front() *outFrame {
	if q.head == len(q.frames) {
		return nil
	}
	return q.frames[q.head]
}

func (q *fifo) pop() *outFrame {
	f := q.frames[q.head]
	q.frames[q.head] = nil
	if q.head++; q.head == len(q.frames) {
		q.frames, q.head = q.frames[:0], 0
	}
	return f
}

// burst is one writev: preludes and headers in scratch memory, payload slices as they are. The holder
// of writing's lock owns and reuses it.
type burst struct {
	scratch []byte
	from    int // the scratch bytes before this index are in iov
	iov     net.Buffers
	left    net.Buffers // the unwritten rest of iov
	total   int
	base    int  // total before the priority being taken
	checked bool // payloads are sent with checksums
	pieces  []piece
}

// piece is one piece of a frame, without its checksums: its prelude and header, and the range of its payload in iov.
type piece struct {
	head     []byte
	from, to int
}

// fits reports whether the next piece of f may be added. The first piece of a priority always may.
func (b *burst) fits(f *outFrame, limit int) bool {
	next := preludeBytes + checksumBytes + min(f.whole-f.sent, pieceBytes)
	if f.sent == 0 {
		next += len(f.header)
	}
	return b.total == b.base || b.total-b.base+next <= limit
}

// add takes the next piece of f and reports whether it was the last.
func (b *burst) add(f *outFrame) bool {
	here := min(f.whole-f.sent, pieceBytes)
	p := prelude{kind: f.kind, class: f.class, whole: f.whole, here: here, checked: b.checked && here > 0}
	header := f.header
	if f.sent > 0 {
		p.kind, p.whole, header = kindRest, 0, nil
	}
	before := len(b.scratch)
	b.scratch = appendPiece(b.scratch, p, header)
	b.total += len(b.scratch) - before + here
	f.sent += here
	if p.checked {
		head := b.scratch[before:]
		b.seal()
		b.pieces = append(b.pieces, piece{head: head, from: len(b.iov)})
	}
	for here > 0 {
		part := f.payload[0][f.skip:]
		if part = part[:min(len(part), here)]; len(part) > 0 {
			b.seal()
			b.iov = append(b.iov, part)
		}
		here -= len(part)
		if f.skip += len(part); f.skip == len(f.payload[0]) {
			f.payload, f.skip = f.payload[1:], 0
		}
	}
	if p.checked {
		b.pieces[len(b.pieces)-1].to = len(b.iov)
	}
	return f.sent == f.whole
}

// sum fills in the checksums. take does not do that, because senders wait for the outbox's lock.
func (b *burst) sum() {
	for _, p := range b.pieces {
		seal(p.head, b.iov[p.from:p.to])
	}
}

// seal moves scratch bytes into iov. They stay valid when scratch grows, in the old memory.
func (b *burst) seal() {
	if b.from < len(b.scratch) {
		b.iov = append(b.iov, b.scratch[b.from:])
		b.from = len(b.scratch)
	}
}

// skip drops n written bytes.
func (b *burst) skip(n int) {
	for n > 0 {
		part := min(n, len(b.left[0]))
		b.left[0] = b.left[0][part:]
		if n -= part; len(b.left[0]) == 0 {
			b.left = b.left[1:]
		}
	}
}

// reset empties the burst and reuses its memory.
func (b *burst) reset() {
	clear(b.iov)
	clear(b.pieces)
	*b = burst{scratch: b.scratch[:0], iov: b.iov[:0], checked: b.checked, pieces: b.pieces[:0]}
}
