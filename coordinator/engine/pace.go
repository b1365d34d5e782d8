package engine

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// restTime is the pause of a channel that is far behind after each burst.
	restTime = time.Millisecond
	// restLate is how late a pause may end. A longer delay means that this broker is short of CPU.
	restLate = restTime / 2
	// putsLately is how long after the last put channels are paced.
	putsLately = 100 * time.Millisecond
	// A pause that ends in time makes the bursts burstStep larger. A pause that ends late halves them.
	burstLeast = 256 << 10
	burstMost  = 4 << 20
	burstStep  = 16 << 10
)

// pace is the paced catch-up of channels that are far behind (nsqd.Options.Pace, docs/adr/0007). Without puts they read
// at full speed. With puts they read only as fast as spare CPU allows. As in TCP's congestion control, bursts grow a
// little while pauses end in time, and are halved when a pause ends late.
type pace struct {
	lastPut atomic.Int64 // unix ns
	burst   atomic.Int64 // bytes
	mu      struct {
		sync.Mutex
		halved time.Time // late pauses that began before this do not halve the bursts again
	}
}

func newPace() *pace {
	p := &pace{}
	p.burst.Store(burstLeast)
	return p
}

func (p *pace) put(now time.Time) { p.lastPut.Store(now.UnixNano()) }

// Burst implements nsqd.Options.Pace.
func (p *pace) Burst() int {
	if time.Now().UnixNano()-p.lastPut.Load() > putsLately.Nanoseconds() {
		return 0
	}
	return int(p.burst.Load())
}

// Pause implements nsqd.Options.Pace.
func (p *pace) Pause(wake func()) {
	began := time.Now()
	time.AfterFunc(restTime, func() {
		p.ended(began, time.Now())
		wake()
	})
}

func (p *pace) ended(began, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	burst := p.burst.Load()
	switch {
	case now.Sub(began) <= restTime+restLate:
		p.burst.Store(min(burst+burstStep, burstMost))
	case began.After(p.mu.halved):
		p.mu.halved = now
		p.burst.Store(max(burst/2, burstLeast))
	}
}
