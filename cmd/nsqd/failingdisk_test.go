package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/testkit/loopdisk"
)

// TestFailingDisk makes the syncs of a running broker's journal fail. The broker ends and logs
// the reason. After a restart it has all acknowledged messages.
func TestFailingDisk(t *testing.T) {
	t.Parallel()
	b := prepare(t)
	disk, err := loopdisk.Mount(filepath.Join(t.TempDir(), "disk"), filepath.Join(b.dir, "journal"), 128<<20)
	if err != nil {
		env.Missing(t, "a disk of its own", err)
	}
	t.Cleanup(func() { require.NoError(t, disk.Close()) })
	b.run()
	b.ready()
	stored := map[string]bool{}
	for i := range 50 {
		body := fmt.Sprint("before ", i)
		status, text := b.post("/pub?topic=t", body)
		require.Equal(t, 200, status, text)
		stored[body] = true
	}
	c := b.dial()
	require.NoError(t, disk.Break())
	_, _ = io.WriteString(c.conn, "PUB t\n\x00\x00\x00\x05after") // a sync of the broker's own may have failed before: then it has ended
	require.Equal(t, 1, b.wait())
	require.Contains(t, b.logged(), "store failed")
	require.Contains(t, b.logged(), "input/output error")

	require.NoError(t, disk.Repair())
	b.run()
	b.ready()
	require.NotContains(t, b.logged(), "store id", "a failed disk is no corrupt one")
	c = b.dial()
	c.consume("t", "c", 100)
	for len(stored) > 0 {
		id, _, body := c.message()
		require.True(t, stored[body] || strings.HasPrefix(body, "after"), body)
		delete(stored, body)
		c.send("FIN %s\n", id)
	}
}
