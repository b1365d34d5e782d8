package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// TestAFullEtcdTakesDeletionsOfKeysAlone: at its quota no topic or channel can be deleted, and the trash not be
// purged. The alarm says what helps, and that helps.
func TestAFullEtcdTakesDeletionsOfKeysAlone(t *testing.T) {
	walking(t)
	c := start(t, 1)
	for _, name := range []string{"kept", "unused", "trashed"} {
		c.create(name, channel, 1)
	}
	_, err := c.nsqctl("topic", "delete", "trashed")
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
	for _, verb := range [][]string{{"topic", "delete", "unused"}, {"topic", "purge", "trashed"}, {"channel", "delete", "kept", channel}} {
		out, err := c.nsqctl(verb...)
		require.Error(t, err, verb)
		require.Contains(t, out, "database space exceeded", verb)
	}
	out, err := c.nsqctl("cluster", "health")
	require.Error(t, err)
	require.Contains(t, out, "delete its keys with etcdctl")
	_, err = client.Delete(t.Context(), "/fill/", clientv3.WithPrefix())
	require.NoError(t, err)
	began := time.Now()
	for _, verb := range [][]string{{"topic", "delete", "unused"}, {"topic", "purge", "trashed"}, {"channel", "delete", "kept", channel}} {
		c.until(strings.Join(verb, " "), func() bool { _, err := c.nsqctl(verb...); return err == nil })
	}
	c.until("no alarm is left", func() bool { _, err := c.nsqctl("cluster", "health"); return err == nil })
	t.Logf("%d MiB were written; all was well %.1f s after their deletion", written/4, time.Since(began).Seconds())
}
