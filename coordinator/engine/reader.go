package engine

import (
	"errors"
	"sync"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/store"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// readers is the number of goroutines that read for followers that catch up.
const readers = 2

// reader reads batches for the machines. Each machine has few reads outstanding, so the
// queue is bounded by them.
//
// newReader starts its goroutines; they end at stop.
type reader struct {
	done sync.WaitGroup
	mu   struct {
		sync.Mutex
		wake   *sync.Cond
		queue  []readJob
		closed bool
	}
}

type readJob struct {
	p   *Partition
	req replica.ReadRequest
}

func newReader() *reader {
	r := &reader{}
	r.mu.wake = sync.NewCond(&r.mu)
	for range readers {
		r.done.Go(r.run)
	}
	return r
}

// read queues a request; its answer is posted to the machine as replica.Read.
func (r *reader) read(p *Partition, req replica.ReadRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.queue = append(r.mu.queue, readJob{p, req})
	r.mu.wake.Signal()
}

func (r *reader) run() {
	for {
		job, ok := r.next()
		if !ok {
			return
		}
		batches, err := job.p.store.ReadAt(job.req.From, job.req.Max)
		if notForMachine(err) {
			err = nil
		}
		job.p.Post(replica.Read{Token: job.req.Token, Batches: batches, Err: err})
	}
}

// notForMachine: a damaged place is repaired, and one that retention removed is passed
// by, without the machine, which asks again after a while.
func notForMachine(err error) bool {
	var d *queue.Damage
	return errors.As(err, &d) || errors.Is(err, store.ErrTrimmed)
}

func (r *reader) next() (readJob, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.mu.queue) == 0 && !r.mu.closed {
		r.mu.wake.Wait()
	}
	if r.mu.closed {
		return readJob{}, false
	}
	job := r.mu.queue[0]
	r.mu.queue = r.mu.queue[1:]
	return job, true
}

// stop drops the queue and waits for the goroutines.
func (r *reader) stop() {
	r.mu.Lock()
	r.mu.closed = true
	r.mu.wake.Broadcast()
	r.mu.Unlock()
	r.done.Wait()
}
