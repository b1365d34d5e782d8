package chaos

import (
	"context"
	"fmt"
	"os"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
)

// With these the test binary is an etcd, on that address and in that directory.
const (
	etcdEnv    = "LOCKSTEP_CHAOS_ETCD"
	etcdDirEnv = "LOCKSTEP_CHAOS_ETCD_DIR"
)

// runEtcd is a lone etcd member until it is killed.
func runEtcd(address string) int {
	s, err := etcd.Start(context.Background(), etcd.Options{
		Name: "etcd", Dir: os.Getenv(etcdDirEnv), ClientAddress: address + ":4154", PeerAddress: address + ":4155",
	})
	if err == nil {
		err = <-s.Err()
	}
	fmt.Fprintln(os.Stderr, "etcd:", err)
	return 1
}

// etcdPaused and etcdKilled are for an external etcd; with embedded members, one
// of these is hit with its broker.
func (r *round) etcdPaused() func() { return r.paused(r.metadataHost()) }

func (r *round) etcdKilled() func() { return r.killed(r.metadataHost()) }

func (r *round) metadataHost() *broker {
	if r.etcd != nil {
		return r.etcd
	}
	return r.any()
}
