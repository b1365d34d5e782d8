package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// portsPerBroker is how far the ports of two brokers are apart, as devcluster lays them out.
const portsPerBroker = 100

// portRange is where ports are taken from: LOCKSTEP_PORTS=FROM-TO, so that two runs side by side never
// take each other's, also not those of a broker that is dead for a moment.
func portRange(t *testing.T) (from, to int) {
	t.Helper()
	from, to = 20000, 31000 // below the ephemeral ports of Linux
	if text := os.Getenv("LOCKSTEP_PORTS"); text != "" {
		n, err := fmt.Sscanf(text, "%d-%d", &from, &to)
		require.True(t, err == nil && n == 2 && to-from >= 10*portsPerBroker, "LOCKSTEP_PORTS=%s must be FROM-TO with a thousand ports", text)
	}
	return from, to
}

// freePorts finds a base port P with P+100·i … +5 free for all brokers. Another
// process may take one before the broker does: then the broker says so and ends.
func freePorts(t *testing.T, brokers int) int {
	t.Helper()
	from, to := portRange(t)
	for range 200 {
		base := from + rand.IntN((to-from-portsPerBroker*brokers)/10)*10
		if allFree(base, brokers) {
			return base
		}
	}
	t.Fatalf("no %d free port ranges between %d and %d", brokers, from, to)
	return 0
}

func allFree(base, brokers int) bool {
	for i := range brokers {
		for plus := range 6 {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+portsPerBroker*i+plus))
			if err != nil {
				return false
			}
			_ = l.Close()
		}
	}
	return true
}
