package metadata

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// TestAFullEtcdTakesDeletionsOfKeysAlone: at its quota no topic or channel can be deleted, and the trash not be
// purged. The alarm says what helps, and that helps.
func TestAFullEtcdTakesDeletionsOfKeysAlone(t *testing.T) {
	e2etest.Walking(t)
	c := e2etest.Start(t, 1)
	for _, name := range []string{"kept", "unused", "trashed"} {
		c.Create(name, e2etest.Channel, 1)
	}
	_, err := c.Nsqctl("topic", "delete", "trashed")
	require.NoError(t, err)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.Brokers[0].Etcd}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer client.Close()
	value := strings.Repeat("x", 256<<10)
	written := 0
	fill := func() error {
		for {
			if _, err := client.Put(t.Context(), fmt.Sprintf("/fill/%d", written), value); err != nil {
				return err
			}
			written++
		}
	}
	require.ErrorContains(t, fill(), "database space exceeded")
	for _, verb := range [][]string{{"topic", "delete", "unused"}, {"topic", "purge", "trashed"}, {"channel", "delete", "kept", e2etest.Channel}} {
		out, err := c.Nsqctl(verb...)
		require.Error(t, err, verb)
		require.Contains(t, out, "database space exceeded", verb)
	}
	out, err := c.Nsqctl("cluster", "health")
	require.Error(t, err)
	require.Contains(t, out, "delete its keys with etcdctl")
	_, err = client.Delete(t.Context(), "/fill/", clientv3.WithPrefix())
	require.NoError(t, err)
	began := time.Now()
	for _, verb := range [][]string{{"topic", "delete", "unused"}, {"topic", "purge", "trashed"}, {"channel", "delete", "kept", e2etest.Channel}} {
		c.Until(strings.Join(verb, " "), func() bool { _, err := c.Nsqctl(verb...); return err == nil })
	}
	c.Until("no alarm is left", func() bool { _, err := c.Nsqctl("cluster", "health"); return err == nil })
	t.Logf("%d MiB were written; all was well %.1f s after their deletion", written/4, time.Since(began).Seconds())
}
