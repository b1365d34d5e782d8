package httpapi

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// headersName is the HTTP header with the headers of a message: one JSON object of strings. Single HTTP headers were
// rejected, because the case of their names is not preserved.
const headersName = "X-Nsq-Headers"

// messageHeader is the header of the messages of a put: X-Nsq-Headers with ?ttl=; nil = none. The only reserved name
// that X-Nsq-Headers may contain is the tag, because the others have their own arguments.
func messageHeader(r *http.Request, values url.Values) ([]byte, error) {
	ttl, err := ttlHeader(values)
	given := r.Header.Values(headersName)
	if err != nil || len(given) == 0 {
		return ttl, err
	}
	if len(given) > 1 {
		return nil, explain(http.StatusBadRequest, "INVALID_HEADERS",
			"X-Nsq-Headers is given %d times: it is one JSON object with all headers", len(given))
	}
	fields := map[string]any{}
	if !utf8.ValidString(given[0]) || json.Unmarshal([]byte(given[0]), &fields) != nil || fields == nil {
		return nil, fail(http.StatusBadRequest, "INVALID_HEADERS")
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if err := checkField(name, fields[name]); err != nil {
			return nil, err
		}
	}
	if len(fields) == 0 {
		return ttl, nil
	}
	if ttl != nil {
		own := map[string]json.Number{}
		_ = json.Unmarshal(ttl, &own) // ttlHeader has just written it, so it is valid
		fields[queue.HeaderTTL] = own[queue.HeaderTTL]
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // consumers and filters read the text as it was given
	if e.Encode(fields) != nil || b.Len()-1 > queue.MaxMessageHeader {
		return nil, fail(http.StatusRequestEntityTooLarge, "HEADERS_TOO_BIG")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func checkField(name string, value any) error {
	if _, text := value.(string); !text {
		return explain(http.StatusBadRequest, "INVALID_HEADERS", "X-Nsq-Headers: the value of %q must be a string", name)
	}
	if strings.HasPrefix(name, api.ReservedHeaders) && name != api.HeaderTag {
		return explain(http.StatusBadRequest, "INVALID_HEADERS",
			"X-Nsq-Headers: %q is reserved; the id has the header X-Nsq-Message-Id, the time to live ttl=, the key key=", name)
	}
	if err := api.CheckHeaderName(name); err != nil {
		return explain(http.StatusBadRequest, "INVALID_HEADERS", "X-Nsq-Headers: %v", err)
	}
	return nil
}
