package httpapi

import (
	"fmt"
	"net"
	"net/http"

	"github.com/lockstepmq/lockstep/internal/budget"
	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/guard"
	"github.com/lockstepmq/lockstep/internal/httpapi/bounds"
	"github.com/lockstepmq/lockstep/internal/metrics"
)

// shareOf is the share of the memory that the client has: that of its user, or of its address if it has not logged in.
func (a *api) shareOf(r *http.Request) budget.Share {
	if s := identityOf(r); s != nil && s.LoggedIn() {
		return a.b.Memory.Share(s.Identity())
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr) // a unix socket has none
	return a.b.Memory.Share(guard.Network(host))
}

// reserve reserves memory for the body of a put, whose size is at most limit. The caller calls release when the put is
// answered.
func (a *api) reserve(r *http.Request, limit int64) (release func(), err error) {
	release, ok := bounds.Body(r, a.shareOf(r), limit)
	if !ok {
		a.b.Recorder.Refused(metrics.RefusedHTTPMemory)
		a.b.Recorder.Answered(edge.ErrBusy)
		return nil, putFailure(edge.ErrBusy)
	}
	return release, nil
}

// bodyFailed is the answer to a body that could not be read to its end: byDefault, unless it was too slow.
func (a *api) bodyFailed(r *http.Request, byDefault error) error {
	if !bounds.TooSlow(r) {
		return byDefault
	}
	a.b.Recorder.Refused(metrics.RefusedHTTPSlow)
	return fail(http.StatusRequestTimeout, fmt.Sprintf("the body arrives too slowly, nothing is stored: above %d KiB, %d bytes a second are required after %v",
		budget.Free>>10, budget.MinRate, budget.Grace))
}

// bounded serves requests whose large answers have memory of the client's share.
func (a *api) bounded(h http.Handler) http.Handler {
	if a.b.Memory == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bounds.Answer(h, w, r, a.shareOf(r), func(w http.ResponseWriter) {
			a.b.Recorder.Refused(metrics.RefusedHTTPMemory)
			a.refuse(w, r, &failure{status: http.StatusServiceUnavailable, message: bounds.ErrMemory.Error(), retryAfter: true})
		})
	})
}
