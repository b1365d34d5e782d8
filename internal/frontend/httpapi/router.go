package httpapi

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/julienschmidt/httprouter"
	"github.com/lockstepmq/lockstep/internal/api"
)

// NSQD is the handler of a broker's HTTP port: nsqd's API, those endpoints of nsqlookupd that
// nsqd does not have, and the cluster's own endpoints.
func NSQD(o Options, b Backend) http.Handler {
	a := &endpoints{opts: o, b: b}
	r := a.door(NSQDRules())
	r.HandlerFunc(http.MethodGet, "/ping", plain(a.ping))
	get := func(path string, e endpoint) { r.HandlerFunc(http.MethodGet, path, a.serve(e)) }
	post := func(path string, e endpoint) { r.HandlerFunc(http.MethodPost, path, a.serve(e)) }
	get("/info", a.info)
	get("/stats", a.stats)
	get("/config/:opt", a.getConfig)
	r.HandlerFunc(http.MethodPut, "/config/:opt", a.serve(a.putConfig))
	post("/pub", a.pub)
	post("/mpub", a.mpub)
	post("/v1/topic/append", a.appendBatch)
	post("/topic/create", a.createTopic)
	post("/topic/delete", a.deleteTopic)
	post("/v1/topic/undelete", a.topicOp(readUndelete))
	post("/v1/topic/purge", a.topicOp(readPurge))
	get("/v1/topic/trash", a.trash)
	get("/v1/cluster/limits", a.limits)
	post("/topic/empty", a.emptyTopic)
	post("/topic/pause", a.topicOp(func(topic string, _ url.Values) api.Operation { return api.PauseTopic{Topic: topic, Paused: true} }))
	post("/topic/unpause", a.topicOp(func(topic string, _ url.Values) api.Operation { return api.PauseTopic{Topic: topic} }))
	post("/v1/topic/move", a.topicOp(readMove))
	post("/v1/topic/replication", a.topicOp(readReplication))
	post("/v1/topic/partitions", a.topicOp(readPartitions))
	post("/v1/topic/set", a.setTopic)
	post("/v1/cluster/balance", a.clusterOp(func(url.Values) api.Operation { return api.Balance{} }))
	if b.Admission != nil {
		get("/v1/cluster/invite", a.invitations)
		post("/v1/cluster/invite", a.invite)
	}
	post("/v1/broker/decommission", a.clusterOp(readDecommission))
	post("/v1/broker/drain", a.clusterOp(readDrain))
	post("/channel/create", a.channelOp(readCreateChannel))
	post("/channel/delete", a.channelOp(func(n names) api.Operation { return api.DeleteChannel{Topic: n.topic, Channel: n.channel} }))
	post("/channel/empty", a.channelOp(func(n names) api.Operation { return api.EmptyChannel{Topic: n.topic, Channel: n.channel} }))
	post("/channel/pause", a.channelOp(readPause(true)))
	post("/channel/unpause", a.channelOp(readPause(false)))
	a.plansOnly(get)
	a.channelsOnly(get, post)
	a.usersOnly(get, post)
	a.consoleOnly(get)
	a.sessionsOnly(r)
	a.consumersOnly(r)
	if b.Tracer != nil {
		get("/v1/trace", a.trace)
	}
	r.profiles("/debug/pprof/")
	a.lookupOnly(get, post)
	get("/v1/cluster", a.cluster)
	r.HandlerFunc(http.MethodGet, "/healthz", plain(a.ping))
	r.HandlerFunc(http.MethodGet, "/readyz", plain(a.ready))
	if b.Metrics != nil {
		r.Handler(http.MethodGet, "/metrics", b.Metrics)
	}
	if b.Inspector != nil {
		r.HandlerFunc(http.MethodGet, "/v1/partition/digest", a.digest)
		r.HandlerFunc(http.MethodGet, "/v1/topic/peek", a.peek)
	}
	if b.Recovery != nil {
		r.HandlerFunc(http.MethodGet, "/v1/topic/recover", a.recover)
		r.HandlerFunc(http.MethodPost, "/v1/topic/recover", a.recover)
	}
	for _, route := range b.Routes {
		r.Handler(route.Method, route.Path, route.Handler)
	}
	return r
}

// Lookup is the handler of a separate lookup port: nsqlookupd's API.
func Lookup(o Options, b Backend) http.Handler {
	a := &endpoints{opts: o, b: b}
	r := a.door(LookupRules())
	r.HandlerFunc(http.MethodGet, "/ping", plain(func() (int, string) { return http.StatusOK, "OK" }))
	get := func(path string, e endpoint) { r.HandlerFunc(http.MethodGet, path, a.serve(e)) }
	post := func(path string, e endpoint) { r.HandlerFunc(http.MethodPost, path, a.serve(e)) }
	get("/info", a.lookupdInfo)
	post("/topic/create", a.lookupdCreateTopic)
	post("/topic/delete", a.lookupdDeleteTopic)
	post("/channel/create", a.lookupdCreateChannel)
	post("/channel/delete", a.lookupdDeleteChannel)
	a.lookupOnly(get, post)
	r.profiles("/debug/pprof")
	return r
}

// RequireTLS answers every request with the order to use HTTPS. The probes of a supervisor are
// excepted: they disclose nothing, and a supervisor often supports only HTTP.
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
		_, _ = w.Write([]byte(body)) // the client may have left
	})
}

// router answers unknown paths and wrong methods as NSQ does.
func (a *endpoints) router() *httprouter.Router {
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
