package httpapi_test

import (
	"encoding/binary"
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/budget"
	"github.com/lockstepmq/lockstep/internal/httpapi"
	"github.com/lockstepmq/lockstep/internal/testkit/edgetest"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// --max-body-size may be up to 256 MiB, but a batch is at most 64 MiB: a larger one could not
// be read again.
func TestMultiPutLargerThanABatch(t *testing.T) {
	log := logrus.New()
	log.SetOutput(io.Discard)
	cluster := edgetest.New()
	t.Cleanup(cluster.Close)
	h := httpapi.NSQD(httpapi.Options{Version: "1.3.0", MaxMsgSize: 32 << 20, MaxBodySize: 128 << 20, MaxDeferTimeout: time.Hour},
		httpapi.Backend{Publisher: cluster, Stats: cluster, Admin: cluster, Directory: cluster.Directory(), Log: log})
	body := binary.BigEndian.AppendUint32(nil, 3)
	for range 3 {
		body = binary.BigEndian.AppendUint32(body, 30<<20)
		body = append(body, make([]byte, 30<<20)...)
	}
	require.Greater(t, len(body), queue.MaxBatchBytes)
	r := do(h, "POST", "/mpub?topic=t&binary=true", string(body))
	require.Equal(t, 413, r.StatusCode, text(t, r))
}

// TestLargeBodiesShareMemory: a body that finds no memory is refused definitely, also one that does
// not announce its size.
func TestLargeBodiesShareMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the memory")
	}
	t.Parallel()
	log := logrus.New()
	log.SetOutput(io.Discard)
	cluster := edgetest.New()
	t.Cleanup(cluster.Close)
	bodies := budget.New(1 << 20)
	h := httpapi.NSQD(httpapi.Options{Version: "1.3.0", MaxMsgSize: 1 << 20, MaxBodySize: 1 << 20, MaxDeferTimeout: time.Hour},
		httpapi.Backend{Publisher: cluster, Stats: cluster, Admin: cluster, Directory: cluster.Directory(), Log: log, Bodies: bodies})
	large := strings.Repeat("m", 600<<10)
	for _, path := range []string{"/pub?topic=t", "/mpub?topic=t"} {
		require.Equal(t, 200, do(h, "POST", path, large).StatusCode)
	}
	require.Zero(t, bodies.Used())
	require.True(t, bodies.Reserve(t.Context(), 600<<10))
	var waits sync.WaitGroup
	for _, path := range []string{"/pub?topic=t", "/mpub?topic=t"} {
		waits.Go(func() {
			r := do(h, "POST", path, large)
			assert.Equal(t, 503, r.StatusCode)
			assert.Equal(t, "1", r.Header.Get("Retry-After"))
			assert.Contains(t, text(t, r), "too many puts waiting, not stored")
		})
		waits.Go(func() {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("POST", path, io.MultiReader(strings.NewReader("of unknown size")))
			h.ServeHTTP(w, r)
			assert.EqualValues(t, -1, r.ContentLength)
			assert.Equal(t, 503, w.Code)
		})
	}
	waits.Go(func() { assert.Equal(t, 200, do(h, "POST", "/pub?topic=t", "small").StatusCode) })
	waits.Wait()
	bodies.Release(600 << 10)
	require.Zero(t, bodies.Used())
}
