package main

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
)

// TestHealth: only an answer 200 in time counts as healthy.
func TestHealth(t *testing.T) {
	hang := make(chan struct{})
	broker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/healthz":
			_, _ = w.Write([]byte("OK\n"))
		case "/readyz":
			http.Error(w, "not registered", http.StatusServiceUnavailable)
		default:
			<-hang
		}
	}))
	defer broker.Close()
	defer close(hang)

	out, err := run(t, time.Minute, "health", "--url", broker.URL+"/healthz")
	require.NoError(t, err)
	require.Equal(t, "OK\n", out)
	_, err = run(t, time.Minute, "health", "--url", broker.URL+"/readyz")
	require.ErrorContains(t, err, "503 Service Unavailable: not registered")
	_, err = run(t, time.Minute, "health", "--url", broker.URL+"/hangs", "--timeout", "50ms")
	require.ErrorContains(t, err, "does not answer in time")
	var cause *url.Error
	require.ErrorAs(t, err, &cause)
	require.NotContains(t, cause.Error(), "Client.Timeout", "not by the limit of every request")
	_, err = run(t, time.Minute, "health", "--url", "http://127.0.0.1:1/healthz")
	require.ErrorContains(t, err, "nothing listens there")

	address := strings.TrimPrefix(broker.URL, "http://")
	out, err = run(t, time.Minute, "health", "--nsqd-http-address", address)
	require.NoError(t, err)
	require.Equal(t, "OK\n", out)
	_, err = run(t, time.Minute, "health", "--ready", "--nsqd-http-address", address)
	require.ErrorContains(t, err, "503 Service Unavailable: not registered")
	_, err = run(t, time.Minute, "health", "--nsqd-http-address", "127.0.0.1:1")
	require.ErrorContains(t, err, "nothing listens there", "the broker that the flag names, and no other")
	_, err = run(t, time.Minute, "health", "--nsqd-http-address", address+",127.0.0.1:1")
	require.Equal(t, cli.ExitUsage, cli.ExitCode(t.Context(), err), "it probes one broker: %v", err)
	_, err = run(t, time.Minute, "health", "--url", broker.URL+"/healthz", "--nsqd-http-address", address)
	require.Equal(t, cli.ExitUsage, cli.ExitCode(t.Context(), cli.AsUsage(err)), "%v", err)
}
