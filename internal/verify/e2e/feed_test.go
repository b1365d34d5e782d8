package e2e

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// records are the 39,995 real records, no two alike.
func records(t *testing.T) []string {
	t.Helper()
	f, err := os.Open("testdata/debian-packages.jsonl.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
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

// numbered makes n short bodies that are all different.
func numbered(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%06d", prefix, i)
	}
	return all
}

// feed hands out bodies, each once, and no further than it is allowed to: so a
// test decides what is still to be put when it kills a broker.
type feed struct {
	mu      sync.Mutex
	more    *sync.Cond
	bodies  []string
	next    int
	allowed int
}

func newFeed(bodies []string, allowed int) *feed {
	f := &feed{bodies: bodies, allowed: allowed}
	f.more = sync.NewCond(&f.mu)
	return f
}

// take waits for the next body; false at the end.
func (f *feed) take() (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.next < len(f.bodies) && f.next >= f.allowed {
		f.more.Wait()
	}
	if f.next >= len(f.bodies) {
		return "", false
	}
	f.next++
	return f.bodies[f.next-1], true
}

// allow lets the first n bodies go out.
func (f *feed) allow(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.allowed = max(f.allowed, n)
	f.more.Broadcast()
}

// end lets nothing more go out.
func (f *feed) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bodies = f.bodies[:f.next]
	f.more.Broadcast()
}
