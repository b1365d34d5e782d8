package httpapi

import (
	"net/http"
	"net/url"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// plansOnly adds the endpoints that show the change before it is made: GET at the paths whose
// POST makes it, with the same arguments.
func (a *api) plansOnly(get func(path string, e endpoint)) {
	if a.b.Planner == nil {
		return
	}
	get("/v1/topic/move", a.plan(func(v url.Values) edge.Operation { return readMove(v.Get("topic"), v) }))
	get("/v1/cluster/balance", a.plan(func(url.Values) edge.Operation { return edge.Balance{} }))
	get("/v1/broker/decommission", a.plan(readDecommission))
	get("/v1/broker/drain", a.plan(readDrain))
}

// plan answers with an edge.Plan.
func (a *api) plan(read func(url.Values) edge.Operation) endpoint {
	return func(r *http.Request) (any, error) {
		values, err := query(r)
		if err != nil {
			return nil, err
		}
		return a.b.Planner.Plan(r.Context(), read(values))
	}
}
