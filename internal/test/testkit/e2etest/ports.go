package e2etest

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

// portRange is where ports are taken from: LOCKSTEP_PORTS=FROM-TO, so that tests which do not reserve their ports, such as
// those of internal/test/verify/console, run alongside these.
func portRange(t *testing.T) (from, to int) {
	t.Helper()
	from, to = 20000, 31000 // below the ephemeral ports of Linux
	if text := os.Getenv("LOCKSTEP_PORTS"); text != "" {
		n, err := fmt.Sscanf(text, "%d-%d", &from, &to)
		require.True(t, err == nil && n == 2 && to-from >= 10*portsPerBroker, "LOCKSTEP_PORTS=%s must be FROM-TO with a thousand ports", text)
	}
	return from, to
}

// FreePorts finds a base port P with P+100·i … +5 free for all brokers, and reserves these ports until the
// test ends: it listens on P+100·i+9, which every test does that wants them, so that no test takes those of a broker that is
// dead for a moment. Another process may take one before the broker does: then the broker says so and ends.
func FreePorts(t *testing.T, brokers int) int {
	t.Helper()
	from, to := portRange(t)
	for range 200 {
		base := from + rand.IntN((to-from-portsPerBroker*brokers)/10)*10
		if reserved := reserve(base, brokers); reserved != nil {
			t.Cleanup(func() { release(reserved) })
			return base
		}
	}
	t.Fatalf("no %d free port ranges between %d and %d", brokers, from, to)
	return 0
}

// reserve listens on the port that stands for the ports of each broker; nil if one of these ports is taken.
func reserve(base, brokers int) (reserved []net.Listener) {
	for i := range brokers {
		first := base + portsPerBroker*i
		l, err := listen(first + 9)
		if err == nil {
			reserved = append(reserved, l)
		}
		if err != nil || !allFree(first) {
			release(reserved)
			return nil
		}
	}
	return reserved
}

func release(all []net.Listener) {
	for _, l := range all {
		_ = l.Close()
	}
}

// allFree reports whether nothing listens on the ports of a broker.
func allFree(first int) bool {
	for plus := range 6 {
		l, err := listen(first + plus)
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
}
