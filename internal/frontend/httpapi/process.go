package httpapi

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/pprof"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/julienschmidt/httprouter"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/internal/auth/access"
)

var processRoutes = []Route{
	get("/ping", access.Open, (*endpoints).ping,
		"Does the broker take messages? 500 with the reason while it cannot store them, 503 while it does not serve yet.").
		replies("").lenient().local().atLookup(func(*endpoints, *request) (any, error) { return probeOK, nil }),
	get("/healthz", access.Open, (*endpoints).ping,
		"Is the process healthy? 500 with the reason while it cannot store messages, 200 while the broker waits for its "+
			"cluster. HEAD answers without the body.").replies("").lenient().local(),
	get("/readyz", access.Open, (*endpoints).ready,
		"Does the broker serve? 503 with the reason while it does not. HEAD answers without the body.").
		replies("").lenient().local(),
	get("/info", access.Observe, (*endpoints).info,
		"Version, addresses and limits of the broker. The lookup port answers with the version only.").
		replies(InfoReply{}).lenient().local().atLookup((*endpoints).lookupInfo),
	get("/config/:opt", access.Observe, (*endpoints).getConfig, "The value of a setting, by its key in the settings file.").
		replies("log_level").lenient().local().fails("INVALID_OPTION"),
	put("/config/:opt", access.AdministerCluster, (*endpoints).putConfig,
		"Change log_level or nsqlookupd_tcp_addresses until the next start.").
		reads("the new value: text for log_level, a JSON list for addresses").
		replies("log_level").lenient().local().fails("INVALID_OPTION", "INVALID_VALUE"),
	get("/metrics", access.Observe, func(a *endpoints, _ *request) (any, error) { return a.b.Metrics, nil },
		"All metrics, in the text format of Prometheus.").replies("").lenient().local(),
	pageRoute("/ui", "The web console, without data."),
	pageRoute("/ui/app.js", "The console's program."),
	pageRoute("/ui/app.css", "The console's style."),
	pageRoute("/ui/icon.svg", "The console's icon."),
	pageRoute("/ui/licences", "The licences of the console's libraries."),
}

// pageRoute serves a file of the console. These files contain no data of the cluster.
func pageRoute(path, summary string) Route {
	serve := func(a *endpoints, _ *request) (any, error) { return a.b.Page, nil }
	return get(path, access.Open, serve, summary).replies("").lenient().local()
}

// profileRoutes are Go's profiles, at NSQ's paths. The list of profiles has two paths because the router would redirect
// from one to the other before the right is checked; nsqd and nsqlookupd serve the list at different ones.
var profileRoutes = []Route{
	profileRoute("/debug/pprof",
		"The profiles of the process.", http.RedirectHandler("/debug/pprof/", http.StatusMovedPermanently)).
		atLookup(handler(http.HandlerFunc(pprof.Index))),
	profileRoute("/debug/pprof/", "The profiles of the process.", http.HandlerFunc(pprof.Index)),
	profileRoute("/debug/pprof/cmdline", "The command line of the process.", http.HandlerFunc(pprof.Cmdline)),
	profileRoute("/debug/pprof/symbol", "Names of functions.", http.HandlerFunc(pprof.Symbol)),
	post("/debug/pprof/symbol", access.AdministerCluster, handler(http.HandlerFunc(pprof.Symbol)), "Names of functions.").
		replies("").lenient().local().everywhere(),
	profileRoute("/debug/pprof/profile",
		"A profile of the processor time.", http.HandlerFunc(pprof.Profile), numberArg("seconds", "its duration")),
	profileRoute("/debug/pprof/heap", "A profile of the memory.", pprof.Handler("heap")),
	profileRoute("/debug/pprof/goroutine",
		"All goroutines.", pprof.Handler("goroutine"), numberArg("debug", "2: as text, with their stacks")),
	profileRoute("/debug/pprof/block", "A profile of waiting.", pprof.Handler("block")),
	profileRoute("/debug/pprof/threadcreate", "A profile of threads.", pprof.Handler("threadcreate")),
	put("/debug/setblockrate", access.AdministerCluster, handler(http.HandlerFunc(setBlockRate)),
		"Record waits for /debug/pprof/block.",
		numberArg("rate", "one event for this many ns of waiting; 0: none").must()).lenient().local().everywhere(),
	post("/debug/freememory", access.AdministerCluster, (*endpoints).freeMemory, "Return memory to the operating system.").
		lenient().local().everywhere(),
}

func profileRoute(path, summary string, h http.Handler, arguments ...Argument) Route {
	r := get(path, access.AdministerCluster, handler(h), summary, arguments...).replies("").lenient().local().everywhere()
	r.Audited = true
	return r
}

// handler serves a route with a handler of another package.
func handler(h http.Handler) endpoint {
	return func(*endpoints, *request) (any, error) { return h, nil }
}

// setBlockRate answers 200 where stock NSQ answers 500 to a success, as freeMemory does: no client can rely on that. An
// invalid rate is refused as text.
func setBlockRate(w http.ResponseWriter, r *http.Request) {
	rate, err := strconv.Atoi(r.URL.Query().Get("rate"))
	if err != nil {
		http.Error(w, "invalid block rate : "+err.Error(), http.StatusBadRequest)
		return
	}
	runtime.SetBlockProfileRate(rate)
	respond(w, http.StatusOK, nil)
}

func (a *endpoints) freeMemory(*request) (any, error) {
	debug.FreeOSMemory()
	return nil, nil
}

// probe is an answer to a supervisor: text without the API's header.
type probe struct {
	status int
	text   string
}

var probeOK = probe{http.StatusOK, "OK"}

func (p probe) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(p.status)
	_, _ = w.Write([]byte(p.text)) // the client may have disconnected
}

// ping fails while the broker cannot store messages.
func (a *endpoints) ping(*request) (any, error) {
	if text := a.health(); text != probeOK.text {
		return probe{http.StatusInternalServerError, text}, nil
	}
	return probeOK, nil
}

func (a *endpoints) health() string {
	if err := a.b.Stats.Health(); err != nil {
		return notOK + err.Error()
	}
	return probeOK.text
}

// notOK begins the answer of /ping, as in NSQ, if the broker does not accept messages.
const notOK = "NOK - "

func (a *endpoints) ready(*request) (any, error) {
	if err := a.b.Directory.Ready(); err != nil {
		return probe{http.StatusServiceUnavailable, err.Error()}, nil
	}
	return probeOK, nil
}

// NotReady is the handler of every port of a broker that does not serve yet. The process is healthy (/healthz). /ping,
// /readyz and every other path answer with the reason for the wait. Requests have no effect, so the client may send
// them to another broker (api.NotReadyHeader).
func NotReady(why func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			probeOK.ServeHTTP(w, r)
			return
		}
		reason := outcome.ErrNotReady.Error() + ": " + why()
		w.Header().Set(api.NotReadyHeader, "true")
		w.Header().Set("Retry-After", "1")
		switch r.URL.Path {
		case "/ping":
			probe{http.StatusServiceUnavailable, notOK + reason}.ServeHTTP(w, r)
		case "/readyz":
			probe{http.StatusServiceUnavailable, reason}.ServeHTTP(w, r)
		default:
			respond(w, http.StatusServiceUnavailable, (&failure{message: reason}).body())
		}
	})
}

func (a *endpoints) info(*request) (any, error) {
	i, c := a.opts.InfoReply, &a.opts.Connection
	i.StartTime, i.MaxHeartbeatInterval, i.MaxDeflateLevel = a.opts.StartTime.Unix(), int64(c.MaxHeartbeatInterval), c.MaxDeflateLevel
	i.MaxOutputBufferSize, i.MaxOutputBufferTimeout = c.MaxOutputBufferSize, int64(c.MaxOutputBufferTimeout)
	return i, nil
}

func (a *endpoints) lookupInfo(*request) (any, error) {
	return map[string]string{"version": a.opts.Version}, nil
}

func optionName(q *request) string { return httprouter.ParamsFromContext(q.Context()).ByName("opt") }

func (a *endpoints) getConfig(q *request) (any, error) {
	if v, ok := a.b.Config.Get(optionName(q)); ok {
		return v, nil
	}
	return nil, fail(http.StatusBadRequest, "INVALID_OPTION")
}

const maxOption = 64 << 10

// putConfig changes one of the two options that NSQ can change at run time, and answers with the new value.
func (a *endpoints) putConfig(q *request) (any, error) {
	limit := min(a.opts.MaxMsgSize, maxOption)
	body, err := io.ReadAll(io.LimitReader(q.Body, limit+1))
	if err != nil {
		return nil, fail(http.StatusInternalServerError, "INTERNAL_ERROR")
	}
	if len(body) == 0 || int64(len(body)) > limit {
		return nil, fail(http.StatusRequestEntityTooLarge, "INVALID_VALUE")
	}
	switch optionName(q) {
	case "nsqlookupd_tcp_addresses":
		var addresses []string
		if err = json.Unmarshal(body, &addresses); err == nil {
			err = a.b.Config.SetLookupdAddresses(addresses)
		}
	case "log_level":
		err = a.b.Config.SetLogLevel(string(body))
	default:
		return nil, fail(http.StatusBadRequest, "INVALID_OPTION")
	}
	if err != nil {
		return nil, explain(http.StatusBadRequest, "INVALID_VALUE", "%s does not take this value: %v", optionName(q), err)
	}
	return a.getConfig(q)
}
