package httpapi

import (
	"net/http"
	"net/url"

	"github.com/lockstepmq/lockstep/internal/api"
)

// plansOnly adds the endpoints that show the change before it is made: GET at the paths whose
// POST makes it, with the same arguments.
func (a *endpoints) plansOnly(get func(path string, e endpoint)) {
	if a.b.Planner == nil {
		return
	}
	get("/v1/topic/move", a.plan(func(v url.Values) api.Operation { return readMove(v.Get("topic"), v) }))
	get("/v1/cluster/balance", a.plan(func(url.Values) api.Operation { return api.Balance{} }))
	get("/v1/broker/decommission", a.plan(readDecommission))
	get("/v1/broker/drain", a.plan(readDrain))
}

// plan answers with an api.Plan.
func (a *endpoints) plan(read func(url.Values) api.Operation) endpoint {
	return func(r *http.Request) (any, error) {
		values, err := query(r)
		if err != nil {
			return nil, err
		}
		return a.b.Planner.Plan(r.Context(), read(values))
	}
}
