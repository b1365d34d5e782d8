package httpapi_test

import (
	"encoding/binary"
	"io"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"

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
