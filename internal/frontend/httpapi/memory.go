package httpapi

import (
	"fmt"
	"net"
	"net/http"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/auth/limits"
	"github.com/lockstepmq/lockstep/internal/observe/metrics"
)

// shareOf is the share of the memory that the client has: that of its user, or of its address if it has not logged in.
func (a *endpoints) shareOf(r *http.Request) limits.Share {
	if s := identityOf(r); s != nil && s.LoggedIn() {
		return a.b.Memory.Share(s.Identity())
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr) // a unix socket has none
	return a.b.Memory.Share(guard.Network(host))
}

// reserve reserves memory for the body of a put, whose size is at most limit. The caller calls release when the put is
// answered.
func (a *endpoints) reserve(r *http.Request, limit int64) (release func(), err error) {
	release, ok := Body(r, a.shareOf(r), limit)
	if !ok {
		a.b.Recorder.Refused(metrics.RefusedHTTPMemory)
		a.b.Recorder.Answered(api.ErrBusy)
		return nil, putFailure(api.ErrBusy)
	}
	return release, nil
}

// bodyFailed is the answer to a body that could not be read to its end: byDefault, unless it was too slow.
func (a *endpoints) bodyFailed(r *http.Request, byDefault error) error {
	if !TooSlow(r) {
		return byDefault
	}
	a.b.Recorder.Refused(metrics.RefusedHTTPSlow)
	return fail(http.StatusRequestTimeout, fmt.Sprintf("the body arrives too slowly, nothing is stored: above %d KiB, %d bytes a second are required after %v",
		limits.Free>>10, limits.MinRate, limits.Grace))
}

// bounded serves requests whose large answers have memory of the client's share.
func (a *endpoints) bounded(h http.Handler) http.Handler {
	if a.b.Memory == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Answer(h, w, r, a.shareOf(r), func(w http.ResponseWriter) {
			a.b.Recorder.Refused(metrics.RefusedHTTPMemory)
			a.refuse(w, r, &failure{status: http.StatusServiceUnavailable, message: ErrMemory.Error(), retryAfter: true})
		})
	})
}
