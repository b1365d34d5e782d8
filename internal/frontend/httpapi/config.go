package httpapi

import (
	"encoding/json"
	"io"
	"net/http"

	"github.com/julienschmidt/httprouter"
)

// optionName returns the name of the option in a /config/:opt request.
func optionName(r *http.Request) string {
	return httprouter.ParamsFromContext(r.Context()).ByName("opt")
}

// getConfig: GET /config/:opt. A string is sent as it is, any other value as JSON.
func (a *endpoints) getConfig(r *http.Request) (any, error) {
	if a.b.Config != nil {
		if v, ok := a.b.Config.Get(optionName(r)); ok {
			return v, nil
		}
	}
	return nil, fail(http.StatusBadRequest, "INVALID_OPTION")
}

// maxOption bounds the value of an option in bytes.
const maxOption = 64 << 10

// putConfig: PUT /config/:opt changes one of the two options that NSQ can change at run time,
// and answers the new value.
func (a *endpoints) putConfig(r *http.Request) (any, error) {
	limit := min(a.opts.MaxMsgSize, maxOption)
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err != nil {
		return nil, fail(http.StatusInternalServerError, "INTERNAL_ERROR")
	}
	if len(body) == 0 || int64(len(body)) > limit {
		return nil, fail(http.StatusRequestEntityTooLarge, "INVALID_VALUE")
	}
	if a.b.Config == nil {
		return nil, fail(http.StatusBadRequest, "INVALID_OPTION")
	}
	switch optionName(r) {
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
		return nil, explain(http.StatusBadRequest, "INVALID_VALUE", "%s does not take this value: %v", optionName(r), err)
	}
	return a.getConfig(r)
}
