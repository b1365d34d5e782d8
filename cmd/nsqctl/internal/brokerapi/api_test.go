package brokerapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
)

// deadAddress is an address without a listener.
const deadAddress = "127.0.0.1:1"

// broker is a broker that answers with h.
func broker(t *testing.T, h http.HandlerFunc) (address string) {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// live is a broker that answers each request, and counts those that change something.
func live(t *testing.T) (address string, posts *int) {
	posts = new(int)
	return broker(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			*posts++
		}
		_, _ = w.Write([]byte(`{"topics":["orders"]}`))
	}), posts
}

func hangsUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

func waits(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set(api.NotReadyHeader, "true")
	http.Error(w, "waiting for n2, n3", http.StatusServiceUnavailable)
}

func refuses(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }

func client(addresses ...string) *Client { return &Client{Addresses: addresses, HTTP: &http.Client{}} }

// TestTheNextBrokerIsTried: any broker of the cluster can answer, so a broker that is dead,
// waits for others or closes connections is skipped.
func TestTheNextBrokerIsTried(t *testing.T) {
	last, _ := live(t)
	waiting := broker(t, waits)
	for _, first := range []string{deadAddress, broker(t, hangsUp), waiting} {
		var v struct{ Topics []string }
		require.NoError(t, client(first, last).GetAny(t.Context(), "/topics", nil, &v))
		require.Equal(t, []string{"orders"}, v.Topics)
	}
	err := client(deadAddress, waiting).GetAny(t.Context(), "/topics", nil, new(struct{}))
	require.ErrorContains(t, err, deadAddress)
	require.ErrorContains(t, err, "waiting for n2, n3")
}

// TestAChangeIsMadeOnce: a change that a broker may have made is not requested again.
func TestAChangeIsMadeOnce(t *testing.T) {
	for name, test := range map[string]struct {
		first string
		posts int
	}{
		"dead":     {deadAddress, 1},
		"waits":    {broker(t, waits), 1},
		"hangs up": {broker(t, hangsUp), 0},
		"refuses":  {broker(t, refuses), 0},
	} {
		t.Run(name, func(t *testing.T) {
			last, posts := live(t)
			_, err := client(test.first, last).CallAny(t.Context(), http.MethodPost, "/topic/delete", nil)
			require.Equal(t, test.posts == 1, err == nil, err)
			require.Equal(t, test.posts, *posts)
		})
	}
}

// TestErrorsAreSentences: the broker's own words, with what to do, and a status only without words.
func TestErrorsAreSentences(t *testing.T) {
	for answer, says := range map[string]string{
		`{"message":"TOPIC_NOT_FOUND"}`:                                                     "there is no such topic: nsqctl topic list, and nsqctl topic trash for deleted ones (TOPIC_NOT_FOUND)",
		`{"message":"invalid argument: partitions must be above 0"}`:                        "the broker refuses: invalid argument: partitions must be above 0",
		`{"message": "TLS_REQUIRED", "https_port": 4152}`:                                   "the broker requires TLS: give its HTTPS address (port 4152) with --nsqd-http-address, and --tls-root-ca-file (TLS_REQUIRED)",
		"Client sent an HTTP request to an HTTPS server.\n":                                 "this is a port with TLS: give --tls-root-ca-file, or --tls if a public authority signed the certificate",
		`{"message":"FORBIDDEN","detail":"the user of this request has not got the right"}`: "the broker refuses: the user of this request has not got the right (FORBIDDEN)\nrights: nsqctl acl list, nsqctl acl grant --help",
		`no such page`: "GET /v1/x: 404 Not Found: no such page",
	} {
		at := broker(t, func(w http.ResponseWriter, _ *http.Request) {
			switch {
			case strings.HasPrefix(answer, "Client sent"):
				w.WriteHeader(http.StatusBadRequest)
			case strings.Contains(answer, "FORBIDDEN"):
				w.WriteHeader(http.StatusForbidden)
			default:
				w.WriteHeader(http.StatusNotFound)
			}
			_, _ = w.Write([]byte(answer))
		})
		require.EqualError(t, client(at).GetAny(t.Context(), "/v1/x", nil, new(struct{})), says)
	}
}
