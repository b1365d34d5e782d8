package httpapi

import (
	"net/http"
	"net/http/pprof"
	"runtime"
	"runtime/debug"
	"strconv"
)

// debug adds Go's profiles at NSQ's paths. index is the path of the list of profiles; nsqd and
// nsqlookupd differ by a slash.
func (a *api) debug(r *door, index string) {
	r.HandlerFunc(http.MethodGet, index, pprof.Index)
	r.HandlerFunc(http.MethodGet, "/debug/pprof/cmdline", pprof.Cmdline)
	r.HandlerFunc(http.MethodGet, "/debug/pprof/symbol", pprof.Symbol)
	r.HandlerFunc(http.MethodPost, "/debug/pprof/symbol", pprof.Symbol)
	r.HandlerFunc(http.MethodGet, "/debug/pprof/profile", pprof.Profile)
	for _, name := range []string{"heap", "goroutine", "block", "threadcreate"} {
		r.Handler(http.MethodGet, "/debug/pprof/"+name, pprof.Handler(name))
	}
	r.HandlerFunc(http.MethodPut, "/debug/setblockrate", setBlockRate)
	r.HandlerFunc(http.MethodPost, "/debug/freememory", a.serve(freeMemory))
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
	respond(w, http.StatusOK, nil)
}

// freeMemory: POST /debug/freememory.
func freeMemory(*http.Request) (any, error) {
	debug.FreeOSMemory()
	return nil, nil
}
