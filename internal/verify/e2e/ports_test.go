package e2e

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

const (
	portsFrom, portsTo = 20000, 31000 // below the ephemeral ports of Linux
	portsPerBroker     = 100          // as devcluster lays them out
)

// freePorts finds a base port P with P+100·i … +5 free for all brokers. Another
// process may take one before the broker does: then the broker says so and ends.
func freePorts(t *testing.T, brokers int) int {
	t.Helper()
	for range 200 {
		base := portsFrom + rand.IntN((portsTo-portsFrom)/10)*10
		if allFree(base, brokers) {
			return base
		}
	}
	t.Fatalf("no %d free port ranges between %d and %d", brokers, portsFrom, portsTo)
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
