package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/store"
)

// readers is the number of goroutines that read for followers that catch up.
const readers = 2

// reader reads batches for the machines. Each has few reads outstanding, which bounds the queue.
type reader struct {
	done     sync.WaitGroup
	throttle throttle
	ctx      context.Context // ends at stop
	cancel   context.CancelFunc
	mu       struct {
		sync.Mutex
		wake  *sync.Cond
		queue []readJob
	}
}

type readJob struct {
	p   *Partition
	req replica.ReadRequest
}

// rate is in bytes a second; 0 = no limit.
func newReader(rate int64) *reader {
	r := &reader{throttle: throttle{rate: rate}}
	r.ctx, r.cancel = context.WithCancel(context.Background())
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
		if pause := r.throttle.pause(time.Now(), size(batches)); pause > 0 && !concurrency.Sleep(r.ctx, pause) {
			return
		}
		job.p.Post(replica.Read{Token: job.req.Token, Batches: batches, Err: err})
	}
}

func size(batches []queue.Batch) (bytes int) {
	for i := range batches {
		bytes += len(batches[i].Bytes)
	}
	return bytes
}

// throttle spreads bytes over time. Idle time earns no credit, because the throttle exists to prevent bursts.
type throttle struct {
	rate int64 // bytes a second; 0 = no limit
	mu   struct {
		sync.Mutex
		free time.Time // when the time that earlier reads take at this rate ends
	}
}

func (t *throttle) pause(now time.Time, bytes int) time.Duration {
	if t.rate <= 0 || bytes == 0 {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	from := now
	if t.mu.free.After(from) {
		from = t.mu.free
	}
	t.mu.free = from.Add(time.Duration(float64(bytes) / float64(t.rate) * float64(time.Second)))
	return from.Sub(now)
}

// notForMachine reports whether an error concerns a damaged range, which is repaired, or a range that retention has
// removed. Such an error is not reported to the machine, which retries after a while.
func notForMachine(err error) bool {
	var d *queue.Damage
	return errors.As(err, &d) || errors.Is(err, store.ErrTrimmed)
}

func (r *reader) next() (readJob, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.mu.queue) == 0 && r.ctx.Err() == nil {
		r.mu.wake.Wait()
	}
	if r.ctx.Err() != nil {
		return readJob{}, false
	}
	job := r.mu.queue[0]
	r.mu.queue = r.mu.queue[1:]
	return job, true
}

// stop drops the queue and waits for the goroutines.
func (r *reader) stop() {
	r.mu.Lock()
	r.cancel()
	r.mu.wake.Broadcast()
	r.mu.Unlock()
	r.done.Wait()
}
