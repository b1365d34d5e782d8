package guard

import (
	"net/url"
	"strings"

	"github.com/lockstepmq/lockstep/internal/api"
)

// clip makes a stranger's text short, and harmless for a terminal. The copy does not reference the request's bytes.
func clip(text string) string {
	return api.Printable(strings.Clone(text[:min(len(text), maxText)]))
}

// maxArgument bounds each argument of a long query in the audit, in bytes.
const maxArgument = 128

// Query is a query string for the audit. In a long one the arguments in names come first, and each is truncated separately: a
// client could hide the topic behind other arguments otherwise.
func Query(raw string, names []string) string {
	if len(raw) <= maxText {
		return raw
	}
	values, _ := url.ParseQuery(raw) // the endpoint refuses a malformed query
	var parts []string
	for _, name := range names {
		if values.Has(name) {
			parts = append(parts, cutOff(name+"="+url.QueryEscape(values.Get(name))))
		}
	}
	return strings.Join(append(parts, cutOff(raw)), "&")
}

func cutOff(text string) string {
	if len(text) <= maxArgument {
		return text
	}
	return text[:maxArgument] + "…"
}
