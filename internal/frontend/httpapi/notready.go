package httpapi

import (
	"net/http"

	"github.com/lockstepmq/lockstep/internal/api"
)

// NotReady is the handler of every port of a broker that does not serve yet. The process is
// healthy (/healthz). /ping, /readyz and every other path answer with the reason of the wait.
// No request has an effect, so the client may send it to another broker (api.NotReadyHeader).
func NotReady(why func() string) http.Handler {
	healthy := plain(func() (int, string) { return http.StatusOK, "OK" })
	reason := func() string { return api.ErrNotReady.Error() + ": " + why() }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			healthy(w, r)
			return
		}
		w.Header().Set(api.NotReadyHeader, "true")
		w.Header().Set("Retry-After", "1")
		switch r.URL.Path {
		case "/ping":
			plain(func() (int, string) { return http.StatusServiceUnavailable, notOK + reason() })(w, r)
		case "/readyz":
			plain(func() (int, string) { return http.StatusServiceUnavailable, reason() })(w, r)
		default:
			respond(w, http.StatusServiceUnavailable, (&failure{message: reason()}).body())
		}
	})
}
