package etcdserver

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/testkit/env"
)

// TestHeldProposalIsGivenUp: etcd holds a forwarded proposal until there is a leader. The front ends
// the request, so that its sender has a connection for the votes; a stream has no such bound.
func TestHeldProposalIsGivenUp(t *testing.T) {
	f := &front{socket: filepath.Join(t.TempDir(), "peer.sock")}
	l, err := net.Listen("unix", f.socket)
	require.NoError(t, err)
	given := make(chan struct{}, 1)
	etcd := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case raftPath:
			<-r.Context().Done()
			given <- struct{}{}
		default:
			<-time.After(raftTimeout + 200*time.Millisecond)
			w.WriteHeader(http.StatusNoContent)
		}
	})}
	go func() { _ = etcd.Serve(l) }()
	t.Cleanup(func() { require.NoError(t, etcd.Close()) })
	f.started()
	t.Cleanup(f.stopped)
	port := httptest.NewServer(http.HandlerFunc(f.forward))
	t.Cleanup(port.Close)
	ctx, cancel := context.WithTimeout(t.Context(), env.Within(t, 5*time.Second))
	defer cancel()
	ask := func(method, path string) int {
		r, err := http.NewRequestWithContext(ctx, method, port.URL+path, strings.NewReader("a message"))
		require.NoError(t, err)
		answer, err := port.Client().Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	require.Equal(t, http.StatusServiceUnavailable, ask("POST", "/raft"))
	<-given // etcd hears of it
	require.Equal(t, http.StatusNoContent, ask("GET", "/raft/stream/message/1"))
	require.Equal(t, http.StatusNoContent, ask("POST", "/raft/snapshot"))
}
