package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEachPartHasItsFiles: the parts together never take more than the limit, whichever port is
// flooded. A connection at a port of etcd takes three files when it is a broker's, one before.
func TestEachPartHasItsFiles(t *testing.T) {
	for _, limit := range []uint64{1024, 4096, 12_288, 65_536, 1 << 20, filesMax, 1 << 62} {
		f := divideFiles(limit)
		etcdPort := f.etcd.Waiting + 3*f.etcd.Admitted
		sum := f.store + f.tcp + f.http + ownFiles(int(min(limit, filesMax))) + f.rpc.Waiting + 2*etcdPort
		require.LessOrEqual(t, uint64(sum), limit, "%+v", f)
		require.GreaterOrEqual(t, f.http, 100)
		require.GreaterOrEqual(t, f.etcd.Admitted, 32)
	}
	small := divideFiles(64)
	require.Positive(t, small.tcp)
	require.Positive(t, small.http)
	require.Positive(t, small.rpc.Waiting)
}
