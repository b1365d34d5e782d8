package httpapi

import (
	"net/http"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// NotReady is the handler of every port of a broker that does not serve yet. The process is
// healthy (/healthz, /ping). /readyz and every other path answer with the reason of the wait.
// No request has an effect, so the client may send it to another broker (edge.NotReadyHeader).
func NotReady(why func() string) http.Handler {
	healthy := plain(func() (int, string) { return http.StatusOK, "OK" })
	waiting := plain(func() (int, string) { return http.StatusServiceUnavailable, edge.ErrNotReady.Error() + ": " + why() })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz", "/ping":
			healthy(w, r)
			return
		}
		w.Header().Set(edge.NotReadyHeader, "true")
		w.Header().Set("Retry-After", "1")
		if r.URL.Path == "/readyz" {
			waiting(w, r)
			return
		}
		respond(w, http.StatusServiceUnavailable, map[string]string{"message": edge.ErrNotReady.Error() + ": " + why()})
	})
}
