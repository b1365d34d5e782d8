package httpapi

// The handlers of Go's profiles, at NSQ's paths.

import (
	"net/http"
	"net/http/pprof"
	"runtime"
	"runtime/debug"
	"strconv"
)

// Handlers returns the handlers by method and path. index is the path of the list of profiles; nsqd and nsqlookupd
// differ by a slash. The list has both paths, because the router would redirect to the other one before it asks for a right.
func Handlers(index string) map[string]http.Handler {
	all := map[string]http.Handler{
		"GET /debug/pprof":         http.RedirectHandler("/debug/pprof/", http.StatusMovedPermanently),
		"GET /debug/pprof/":        http.HandlerFunc(pprof.Index),
		"GET /debug/pprof/cmdline": http.HandlerFunc(pprof.Cmdline),
		"GET /debug/pprof/symbol":  http.HandlerFunc(pprof.Symbol),
		"POST /debug/pprof/symbol": http.HandlerFunc(pprof.Symbol),
		"GET /debug/pprof/profile": http.HandlerFunc(pprof.Profile),
		"PUT /debug/setblockrate":  http.HandlerFunc(setBlockRate),
		"POST /debug/freememory":   http.HandlerFunc(freeMemory),
	}
	all["GET "+index] = http.HandlerFunc(pprof.Index)
	for _, name := range []string{"heap", "goroutine", "block", "threadcreate"} {
		all["GET /debug/pprof/"+name] = pprof.Handler(name)
	}
	return all
}

// setBlockRate: PUT /debug/setblockrate?rate=. Stock NSQ answers 500 to a success here and in
// freeMemory; no client can rely on that, so this broker answers 200. An invalid rate is
// refused as text.
func setBlockRate(w http.ResponseWriter, r *http.Request) {
	rate, err := strconv.Atoi(r.URL.Query().Get("rate"))
	if err != nil {
		http.Error(w, "invalid block rate : "+err.Error(), http.StatusBadRequest)
		return
	}
	runtime.SetBlockProfileRate(rate)
	done(w)
}

// freeMemory: POST /debug/freememory.
func freeMemory(w http.ResponseWriter, _ *http.Request) {
	debug.FreeOSMemory()
	done(w)
}

func done(w http.ResponseWriter) { w.Header().Set("X-NSQ-Content-Type", "nsq; version=1.0") }
