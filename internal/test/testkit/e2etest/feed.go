package e2etest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed" // debianPackages
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

//go:embed testdata/debian-packages.jsonl.gz
var debianPackages []byte

// Records are the 39,995 real records, no two alike.
func Records(t *testing.T) []string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(debianPackages))
	require.NoError(t, err)
	var all []string
	s := bufio.NewScanner(z)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		all = append(all, s.Text())
	}
	require.NoError(t, s.Err())
	require.Len(t, all, 39995)
	return all
}

// Numbered makes n short bodies that are all different.
func Numbered(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%06d", prefix, i)
	}
	return all
}

// Feed hands out bodies, each once, and no further than it is allowed to: so a
// test decides what is still to be put when it kills a broker.
type Feed struct {
	mu      sync.Mutex
	more    *sync.Cond
	bodies  []string
	next    int
	allowed int
	began   time.Time     // of Pace; zero: bodies are due when they are taken
	every   time.Duration // from one body to the next
}

// NewFeed is a feed of bodies, of which so many may go out.
func NewFeed(bodies []string, allowed int) *Feed {
	f := &Feed{bodies: bodies, allowed: allowed}
	f.more = sync.NewCond(&f.mu)
	return f
}

// take waits for the next body; false at the end. due is the time that Pace has for the body, also if no
// producer was free then.
func (f *Feed) take() (body string, due time.Time, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.next < len(f.bodies) && f.next >= f.allowed {
		f.more.Wait()
	}
	if f.next >= len(f.bodies) {
		return "", time.Time{}, false
	}
	due = time.Now()
	if !f.began.IsZero() {
		due = f.began.Add(time.Duration(f.next) * f.every)
	}
	f.next++
	if f.next == len(f.bodies) {
		f.more.Broadcast() // nothing comes for those that wait
	}
	return f.bodies[f.next-1], due, true
}

// Allow lets the first n bodies go out.
func (f *Feed) Allow(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ; f.allowed < n; f.allowed++ {
		f.more.Signal()
	}
}

// Pace lets bodies go out at a rate until stop is called, each when its time has come. Producers that
// are slower take as many as they can.
func (f *Feed) Pace(perSecond int) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	began, every := time.Now(), time.Second/time.Duration(perSecond)
	f.mu.Lock()
	f.began, f.every = began, every
	f.mu.Unlock()
	go func() {
		defer close(ended)
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-tick.C:
				f.Allow(int(time.Since(began) / every))
			case <-end:
				tick.Stop()
				return
			}
		}
	}()
	return func() { close(end); <-ended }
}

// Behind is the number of bodies that are due and not taken.
func (f *Feed) Behind() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.allowed - f.next
}

// End lets nothing more go out.
func (f *Feed) End() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bodies = f.bodies[:f.next]
	f.more.Broadcast()
}
