package guard

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/auth"
)

// maxAnswers bounds the answers of the auth service that are kept.
const maxAnswers = 4096

// answers caches the answers of the auth service, each until its own end. A good client costs
// one query in that time, over HTTP too, where each request logs in.
type answers struct {
	key [sha256.Size]byte
	mu  struct {
		sync.Mutex
		of map[[sha256.Size]byte]*auth.State
	}
}

func newAnswers() *answers {
	a := &answers{}
	_, _ = rand.Read(a.key[:]) // never fails
	a.mu.of = map[[sha256.Size]byte]*auth.State{}
	return a
}

// sum names a request without keeping its secret.
func (a *answers) sum(r auth.Request) (sum [sha256.Size]byte) {
	m := hmac.New(sha256.New, a.key[:])
	_, _ = fmt.Fprintf(m, "%q %t %q %q", r.RemoteIP, r.TLS, r.CommonName, r.Secret) // a hash takes everything
	m.Sum(sum[:0])
	return sum
}

// find gives the answer to a request while it holds, else nil.
func (a *answers) find(r auth.Request, now time.Time) *auth.State {
	sum := a.sum(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	if state := a.mu.of[sum]; state != nil && !state.Expired(now) {
		return state
	}
	return nil
}

// knows reports whether the auth service has known the client, however long ago.
func (a *answers) knows(r auth.Request) bool {
	sum := a.sum(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.of[sum] != nil
}

func (a *answers) keep(r auth.Request, state *auth.State) {
	sum := a.sum(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.mu.of) >= maxAnswers {
		clear(a.mu.of)
	}
	a.mu.of[sum] = state
}
