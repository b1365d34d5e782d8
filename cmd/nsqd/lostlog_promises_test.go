package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// leadsMetadata reports whether a broker's member leads the embedded etcd.
func (b *broker) leadsMetadata() bool {
	b.t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{b.address(4)}, Logger: zap.NewNop()})
	require.NoError(b.t, err)
	defer client.Close()
	s, err := client.Status(b.t.Context(), b.address(4))
	require.NoError(b.t, err)
	return s.Leader == s.Header.MemberId
}

// TestPromiseMemberThatLostItsLog: while the broker was down, the metadata directory of one broker of three was
// replaced by an older one. The leader relies on lost entries. raft notices, and the broker reports damaged files and
// not the place of raft's panic. A change of the leader in between, on a busy machine, hides the loss from raft.
func TestPromiseMemberThatLostItsLog(t *testing.T) {
	all, run := threeBrokers(t, "http")
	for i := range all {
		run(i)
	}
	for _, b := range all {
		b.ready()
	}
	victim := 0
	for all[victim].leadsMetadata() {
		victim++
	}
	b, other := all[victim], all[(victim+1)%3]
	b.stop()
	dir := filepath.Join(b.dir, "etcd")
	require.NoError(t, exec.Command("cp", "-a", dir, dir+".old").Run())
	run(victim)
	b.ready()
	for i := range 20 {
		other.eventually("a topic", func() bool {
			status, _ := other.post(fmt.Sprintf("/topic/create?topic=t%d", i), "")
			return status == http.StatusOK
		})
	}
	require.False(t, b.leadsMetadata())
	b.stop()
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.Rename(dir+".old", dir))
	run(victim)
	require.Equal(t, 1, b.wait())
	require.Contains(t, b.logged(), "its files are damaged; if other brokers run, move the directory away and start again")
	require.Contains(t, b.logged(), "lost?", "raft's own words")
	require.NotContains(t, b.logged(), "goroutine")

	require.NoError(t, os.RemoveAll(dir)) // as the log advises
	run(victim)
	b.ready()
}
