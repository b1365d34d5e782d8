package coordinator

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/gateway"
	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/metadata/metadatatest"
	"github.com/lockstepmq/lockstep/internal/vfs/vfstest"
)

// TestRepeatsAreRecognisedAsLongAsEdgesRepeat: whatever the put limit (--put-hold, up to ten
// minutes), replicas recognise a repeat, and keep what may be repeated, for longer.
func TestRepeatsAreRecognisedAsLongAsEdgesRepeat(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Second, 9 * time.Second, time.Minute, 10 * time.Minute} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			o, err := Options{
				Meta: metadatatest.NewMemory(), Listen: &net.TCPListener{}, FS: vfstest.NewMemory(), Dir: "/data", Node: metadata.NodeState{Name: "n1", RPCAddress: "x"},
				Gateway: gateway.Options{PutLimit: limit},
			}.withDefaults()
			require.NoError(t, err)
			if limit == 0 {
				limit = gateway.DefaultPutLimit
			}
			require.Greater(t, o.Maintenance.RepeatFor, limit, "retention")
			require.Greater(t, o.Replica.RepeatMS, 2*limit.Milliseconds(), "request ids")
			require.GreaterOrEqual(t, o.Replica.RepeatMS, int64(30_000))
		})
	}
}
