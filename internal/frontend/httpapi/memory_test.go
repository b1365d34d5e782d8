package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/auth/limits"
)

// unread is an answer that its client does not read.
type unread struct {
	*httptest.ResponseRecorder
	read chan struct{}
}

func (u *unread) Write(p []byte) (int, error) {
	if len(p) > limits.Free {
		<-u.read
	}
	return u.ResponseRecorder.Write(p)
}

// TestUnreadRepliesShareMemory: large answers that a client does not read hold its share. Further ones are refused with the
// reason, and those of other clients are not.
func TestUnreadRepliesShareMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, memory := withBodies(t, 1<<20)
		for i := range 300 {
			require.Equal(t, 200, do(h, "POST", "/topic/create?topic="+strings.Repeat("t", 50)+string(rune('a'+i%26))+string(rune('a'+i/26)), "").StatusCode)
		}
		get := func(address string, w http.ResponseWriter) {
			r := httptest.NewRequest("GET", "/stats?format=json", nil)
			r.RemoteAddr = address + ":1"
			h.ServeHTTP(w, r)
		}
		var readers sync.WaitGroup
		var all []*unread
		for range 20 {
			u := &unread{httptest.NewRecorder(), make(chan struct{})}
			all = append(all, u)
			readers.Go(func() { get("10.0.0.1", u) })
		}
		synctest.Wait()
		held := memory.Held(limits.Replies)
		require.NotZero(t, held)
		require.LessOrEqual(t, held, int64(1<<20/3))
		other := httptest.NewRecorder()
		get("10.0.0.2", other)
		require.Equal(t, 200, other.Code)
		require.Greater(t, other.Body.Len(), limits.Free)
		late, began := httptest.NewRecorder(), time.Now()
		get("10.0.0.1", late)
		require.Equal(t, 503, late.Code)
		require.Zero(t, time.Since(began), "it waits with its answer in memory, which nobody has counted")
		require.Equal(t, "1", late.Header().Get("Retry-After"))
		require.Contains(t, late.Body.String(), "read the other answers to their end")
		for _, u := range all {
			close(u.read)
		}
		readers.Wait()
		for _, u := range all {
			assert.Contains(t, []int{200, 503}, u.Code)
		}
		require.Zero(t, memory.Used())
	})
}

// late is a body whose bytes do not come in time.
type late struct{ begun bool }

func (l *late) Read(p []byte) (int, error) {
	if l.begun {
		return 0, os.ErrDeadlineExceeded
	}
	l.begun = true
	return copy(p, "x"), nil
}

// TestASlowBodyIsRefused: whatever reads it says so, and nothing is stored.
func TestASlowBodyIsRefused(t *testing.T) {
	h, memory := withBodies(t, 1<<20)
	for _, path := range []string{"/pub?topic=t", "/mpub?topic=t", "/mpub?topic=t&binary=true"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", path, &late{})
		r.ContentLength = 500_000
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusRequestTimeout, w.Code, path)
		require.Contains(t, w.Body.String(), "too slowly, nothing is stored", path)
	}
	require.Zero(t, memory.Used())
}
