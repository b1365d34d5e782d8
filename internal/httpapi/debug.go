package httpapi

import (
	"net/http"
	"net/http/pprof"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/julienschmidt/httprouter"
)

// debug adds Go's profiles as NSQ has them. index is where the list of
// profiles is: nsqd and nsqlookupd differ by a slash.
func (a *api) debug(r *httprouter.Router, index string) {
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

// setBlockRate: PUT /debug/setblockrate?rate=. Stock NSQ answers both of these
// with 500 after doing as asked; nobody can rely on that. A bad rate is refused
// as text.
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
