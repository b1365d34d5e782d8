package httpapi

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/lockstepmq/lockstep/internal/api"
)

// takes returns the handler of a route that refuses all arguments but those of routes.go. An
// endpoint of NSQ alone ignores others, as nsqd does.
func (a *endpoints) takes(route Description, h http.Handler) http.Handler {
	if route.Lenient {
		return h
	}
	names := make([]string, len(route.Arguments))
	for i, argument := range route.Arguments {
		names[i] = argument.Name
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		values, err := query(r)
		if err == nil {
			err = refuseUnknown(values, names)
		}
		if err != nil {
			a.refuse(w, r, err)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// refuseUnknown returns an error for the first argument that is not in names.
func refuseUnknown(values url.Values, names []string) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(names, name) {
			return fmt.Errorf("%w: there is no argument %q, but: %s", api.ErrInvalid, name, cmp.Or(strings.Join(names, ", "), "none"))
		}
	}
	return nil
}
