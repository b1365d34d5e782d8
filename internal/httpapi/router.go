package httpapi

import (
	"fmt"
	"net/http"

	"github.com/julienschmidt/httprouter"
)

// NSQD is the handler of a broker's HTTP port: nsqd's API, of nsqlookupd's what
// nsqd does not have, and the cluster's own endpoints.
func NSQD(o Options, b Backend) http.Handler {
	a := &api{opts: o, b: b}
	r := a.router()
	r.HandlerFunc(http.MethodGet, "/ping", plain(a.ping))
	get := func(path string, e endpoint) { r.HandlerFunc(http.MethodGet, path, a.serve(e)) }
	post := func(path string, e endpoint) { r.HandlerFunc(http.MethodPost, path, a.serve(e)) }
	get("/info", a.info)
	get("/stats", a.stats)
	get("/config/:opt", a.getConfig)
	r.HandlerFunc(http.MethodPut, "/config/:opt", a.serve(a.putConfig))
	post("/pub", a.pub)
	post("/mpub", a.mpub)
	post("/topic/create", a.createTopic)
	post("/topic/delete", a.topicOp("topic.delete"))
	post("/topic/empty", a.emptyTopic)
	post("/topic/pause", a.topicOp("topic.pause"))
	post("/topic/unpause", a.topicOp("topic.unpause"))
	post("/v1/topic/move", a.topicOp("topic.move"))
	post("/v1/topic/replication", a.topicOp("topic.replication"))
	post("/v1/cluster/balance", a.clusterOp("cluster.balance"))
	post("/v1/broker/decommission", a.clusterOp("broker.decommission"))
	for _, verb := range []string{"create", "delete", "empty", "pause", "unpause"} {
		post("/channel/"+verb, a.channelOp("channel."+verb))
	}
	a.channelsOnly(get, post)
	a.debug(r, "/debug/pprof/")
	a.lookupOnly(get, post)
	get("/v1/cluster", a.cluster)
	r.HandlerFunc(http.MethodGet, "/healthz", plain(a.ping))
	r.HandlerFunc(http.MethodGet, "/readyz", plain(a.ready))
	if b.Metrics != nil {
		r.Handler(http.MethodGet, "/metrics", b.Metrics)
	}
	for _, route := range b.Routes {
		r.Handler(route.Method, route.Path, route.Handler)
	}
	return r
}

// Lookup is the handler of a separate lookup port: nsqlookupd's API.
func Lookup(o Options, b Backend) http.Handler {
	a := &api{opts: o, b: b}
	r := a.router()
	r.HandlerFunc(http.MethodGet, "/ping", plain(func() (int, string) { return http.StatusOK, "OK" }))
	get := func(path string, e endpoint) { r.HandlerFunc(http.MethodGet, path, a.serve(e)) }
	post := func(path string, e endpoint) { r.HandlerFunc(http.MethodPost, path, a.serve(e)) }
	get("/info", a.lookupdInfo)
	post("/topic/create", a.lookupdCreateTopic)
	post("/topic/delete", a.lookupdDeleteTopic)
	post("/channel/create", a.lookupdCreateChannel)
	post("/channel/delete", a.lookupdDeleteChannel)
	a.lookupOnly(get, post)
	a.debug(r, "/debug/pprof")
	return r
}

// RequireTLS answers every request that it must come over HTTPS, but for the
// probes of a supervisor, which tell nothing and often speak nothing else.
func RequireTLS(h http.Handler, httpsPort int) http.Handler {
	body := fmt.Sprintf(`{"message": "TLS_REQUIRED", "https_port": %d}`, httpsPort)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" || r.URL.Path == "/readyz" {
			h.ServeHTTP(w, r)
			return
		}
		w.Header().Set("X-NSQ-Content-Type", "nsq; version=1.0")
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(body)) // a client that left needs no answer
	})
}

// router answers unknown paths and wrong methods as NSQ does.
func (a *api) router() *httprouter.Router {
	r := httprouter.New()
	r.NotFound = a.serve(func(*http.Request) (any, error) {
		return nil, fail(http.StatusNotFound, "NOT_FOUND")
	})
	r.MethodNotAllowed = a.serve(func(*http.Request) (any, error) {
		return nil, fail(http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED")
	})
	r.PanicHandler = func(w http.ResponseWriter, req *http.Request, p any) {
		a.refuse(w, req, fmt.Errorf("panic: %v", p))
	}
	return r
}
