package guard

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// freeFailures is how many logins of an address may fail before it has to wait.
	freeFailures = 5
	// firstWait is the first wait; each failure doubles it, up to longestWait.
	firstWait   = 500 * time.Millisecond
	longestWait = 30 * time.Second
	// forgetAfter is the time after the last failure when an address has no failures any more.
	forgetAfter = 5 * time.Minute
	// maxAddresses bounds the addresses that are remembered.
	maxAddresses = 16_384
	// maxPending bounds the logins of an address that are judged at the same time.
	maxPending = 8
)

// outcome is the result of a login, for the backoff of its address.
type outcome int

const (
	loginGood outcome = iota
	loginBad
	loginUnjudged // neither the users nor the auth service could be asked
)

// failures are the bad logins of one address.
type failures struct {
	count   int
	pending int
	last    time.Time
}

// backoff slows addresses down whose logins fail.
type backoff struct {
	mu sync.Mutex
	of map[string]failures
}

func newBackoff() *backoff { return &backoff{of: map[string]failures{}} }

// begin reports whether a login of this address may be judged now; then end must follow.
func (b *backoff) begin(host string, now time.Time) bool {
	key := Network(host)
	b.mu.Lock()
	defer b.mu.Unlock()
	f, known := b.of[key]
	if known && now.Sub(f.last) > forgetAfter && f.pending == 0 {
		f = failures{}
	}
	if f.pending >= maxPending || now.Sub(f.last) < f.wait() {
		return false
	}
	if !known && len(b.of) >= maxAddresses {
		b.makeRoomLocked(now)
	}
	f.pending++
	b.of[key] = f
	return true
}

// end notes how the login went.
func (b *backoff) end(host string, now time.Time, how outcome) {
	key := Network(host)
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.of[key]
	f.pending = max(0, f.pending-1)
	if how == loginBad {
		f.count, f.last = f.count+1, now
	}
	if f.pending == 0 && f.count == 0 {
		delete(b.of, key)
		return
	}
	b.of[key] = f
}

func (f failures) wait() time.Duration {
	if f.count < freeFailures {
		return 0
	}
	return min(longestWait, firstWait<<min(f.count-freeFailures, 10))
}

// makeRoomLocked drops the addresses whose wait is over. If they are too few, it drops all: an
// attacker with more addresses than the limit is not slowed down by address.
func (b *backoff) makeRoomLocked(now time.Time) {
	for key, f := range b.of {
		if f.pending == 0 && now.Sub(f.last) > f.wait() {
			delete(b.of, key)
		}
	}
	if len(b.of) >= maxAddresses {
		clear(b.of)
	}
}

// Network is the unit of limits per address: an IPv4 address, or an IPv6 /64, which one
// customer has as a whole. The host is an address without a port; any other text stays.
func Network(host string) string {
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Unmap().Is4() {
		return host
	}
	prefix, err := ip.WithZone("").Prefix(64)
	if err != nil {
		return host
	}
	return prefix.String()
}
