package chaos

import (
	"sync"
	"time"
)

// health is the harness's own record of what it has broken. The judges of liveness
// (vigil.go, operator.go) excuse nothing else. Any goroutine may use it.
type health struct {
	mu    sync.Mutex
	hurt  map[string]int       // broker → faults of its process or its disk at present
	since map[string]time.Time // broker → when the last of them ended
	ways  map[[2]int]int       // two hosts, the lower first → faults between them at present
	clear map[[2]int]time.Time // … when the last of them ended
	born  time.Time
}

func newHealth() *health {
	return &health{
		hurt: map[string]int{}, since: map[string]time.Time{},
		ways: map[[2]int]int{}, clear: map[[2]int]time.Time{}, born: time.Now(),
	}
}

// hit notes that a fault of a broker begins, or, with by = −1, that one ends.
func (h *health) hit(name string, by int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hurt[name] += by
	h.since[name] = time.Now()
}

// between notes the same of the way between two hosts, in either direction.
func (h *health) between(a, b, by int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	pair := way(a, b)
	h.ways[pair] += by
	h.clear[pair] = time.Now()
}

func way(a, b int) [2]int { return [2]int{min(a, b), max(a, b)} }

// well reports whether nothing is wrong with a broker's process and disk, and since when.
func (h *health) well(name string) (since time.Time, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if since = h.since[name]; since.IsZero() {
		since = h.born
	}
	return since, h.hurt[name] == 0
}

// open reports the same of the way between two hosts.
func (h *health) open(a, b int) (since time.Time, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	pair := way(a, b)
	if since = h.clear[pair]; since.IsZero() {
		since = h.born
	}
	return since, h.ways[pair] == 0
}

// apart reports whether some way of a host is damaged, or was within this time.
func (h *health) apart(host int, lately time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for pair, cleared := range h.clear {
		if (pair[0] == host || pair[1] == host) && (h.ways[pair] > 0 || time.Since(cleared) < lately) {
			return true
		}
	}
	return false
}

// harm marks a broker as hurt until the returned function is called.
func (c *cluster) harm(b *broker) (end func()) {
	c.health.hit(b.name, 1)
	return sync.OnceFunc(func() { c.health.hit(b.name, -1) })
}
