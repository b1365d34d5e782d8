package guard

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/lockstepmq/lockstep/internal/api"
)

// Browsers keeps pages of other origins out. A browser sends any page's requests: a form of a foreign page could delete topics,
// and a host name that its owner points at this broker (DNS rebinding) would let a page read.
type Browsers struct {
	names []string
	cross *http.CrossOriginProtection
}

// NewBrowsers takes this broker's own names, and those of --http-allowed-host: a name, *.suffix, or * for any.
func NewBrowsers(names ...string) *Browsers {
	b := &Browsers{cross: http.NewCrossOriginProtection()}
	for _, n := range names {
		if n = strings.ToLower(strings.TrimSuffix(n, ".")); n != "" {
			b.names = append(b.names, n)
		}
	}
	return b
}

// Refusal is the error code for a request that a foreign page may have made, "" if it is allowed.
func (b *Browsers) Refusal(r *http.Request) string {
	if !b.knows(r) {
		return "HOST_NOT_ALLOWED"
	}
	if b.cross.Check(r) != nil || foreignRead(r) {
		return "CROSS_ORIGIN"
	}
	return ""
}

// foreignRead reports whether a foreign page embeds an answer, also in a frame, without navigating there. It could not read it,
// but a profile costs processor time.
func foreignRead(r *http.Request) bool {
	site, mode, destination := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Sec-Fetch-Mode"), r.Header.Get("Sec-Fetch-Dest")
	linked := mode == "navigate" && (destination == "document" || destination == "")
	return (site == "cross-site" || site == "same-site") && !linked
}

// knows reports whether the request names this broker in a way that the owner of a foreign name cannot arrange: by an address, by
// a name without dots, or by one of the allowed names.
func (b *Browsers) knows(r *http.Request) bool {
	if api.IsProbe(r.URL.Path) {
		return true
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if !strings.Contains(host, ".") || strings.HasSuffix(host, ".localhost") {
		return true
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	for _, n := range b.names {
		suffix, wild := strings.CutPrefix(n, "*")
		if n == host || wild && strings.HasSuffix(host, suffix) {
			return true
		}
	}
	return false
}
