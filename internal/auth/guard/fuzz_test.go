package guard_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/auth/guard"
)

// FuzzBrowsers: whatever stands before a foreign domain in the host of a request, and
// whatever a foreign page sends along, the request is refused.
func FuzzBrowsers(f *testing.F) {
	for _, seed := range [][4]string{
		{"", "", "", ""}, {"127.0.0.1.", ":4151", "http://127.0.0.1:4151", "same-origin"}, {"broker.example.org.", ":80", "null", "cross-site"},
		{"localhost.", ":1", "", "none"}, {"[::1].", "", "", ""}, {"a@b.", ":x", "http://broker.example.org", ""}, {"\x00", "", "", ""},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	b := guard.NewBrowsers("n1", "broker.example.org", "*.internal.example.org")
	f.Fuzz(func(t *testing.T, before, port, origin, site string) {
		r := httptest.NewRequest(http.MethodPost, "/topic/delete", nil)
		r.Host = before + "attacker.test" + port
		_ = b.Refusal(r)                    // any port: no panic
		if !strings.Contains(before, ":") { // no browser sends a port with letters
			r.Host = before + ".attacker.test"
			require.NotEmpty(t, b.Refusal(r), r.Host)
		}
		r.Host, r.Header = "127.0.0.1:4151", http.Header{"Origin": {"http://attacker.test"}, "Sec-Fetch-Mode": {origin}}
		require.NotEmpty(t, b.Refusal(r))
		r.Header = http.Header{"Sec-Fetch-Site": {"cross-site"}, "Origin": {origin}, "Sec-Fetch-Mode": {site}}
		require.NotEmpty(t, b.Refusal(r))
	})
}
