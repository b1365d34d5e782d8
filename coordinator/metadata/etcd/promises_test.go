package etcd_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
)

func TestPromiseLoneMemberIsReadySoon(t *testing.T) {
	o := options(t, "n1")
	o.Heartbeat, o.Election = 0, 0
	began := time.Now()
	ready(t, start(t, o))
	t.Logf("ready after %v", time.Since(began))
	require.Less(t, time.Since(began), 3*time.Second, "the target is well below 1 s on an idle machine")
}

func TestPromiseStopDoesNotWaitForWatches(t *testing.T) {
	s := start(t, options(t, "n1"))
	ready(t, s)
	<-client(t, s).Watch(t.Context(), "k", clientv3.WithCreatedNotify())
	stopsWithin(t, s, 3*time.Second)
}

// TestPromiseAStopIsBounded: etcd's own port, without a front, waits for connections that have not
// sent a whole request.
func TestPromiseAStopIsBounded(t *testing.T) {
	o := options(t, "n1")
	s := start(t, o)
	ready(t, s)
	for range 10 {
		nc, err := net.Dial("tcp", o.ClientAddress)
		require.NoError(t, err)
		t.Cleanup(func() { _ = nc.Close() })
		_, err = nc.Write([]byte("PRI"))
		require.NoError(t, err)
	}
	stopsWithin(t, s, 10*time.Second)
}

// TestPromiseAFloodDoesNotHoldUpTheStop: silent connections at both ports.
func TestPromiseAFloodDoesNotHoldUpTheStop(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			s, o, _ := smallPorts(t, secure)
			flood(t, s, o)
			stopsWithin(t, s, 10*time.Second)
		})
	}
}

func stopsWithin(t *testing.T, s *etcd.Server, limit time.Duration) {
	t.Helper()
	began := time.Now()
	s.Stop()
	require.Less(t, time.Since(began), limit)
}
