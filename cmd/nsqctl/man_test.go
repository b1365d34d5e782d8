package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// TestManualPages: each listed command has a page, and so has the broker; the pages do not
// depend on the current time.
func TestManualPages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "86400")
	var written [2]map[string]string
	for i := range written {
		dir := filepath.Join(t.TempDir(), "man")
		_, err := run(t, time.Minute, "man", dir, "--product-version=1.2.3")
		require.NoError(t, err)
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		written[i] = map[string]string{}
		for _, e := range entries {
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			require.NoError(t, err)
			written[i][e.Name()] = string(text)
		}
	}
	pages := written[0]
	require.Equal(t, pages, written[1])
	require.Contains(t, pages["nsqctl-cluster-status.1"], "in-sync replicas")
	require.Contains(t, pages["nsqd.8"], `\-\-min\-in\-sync`)
	require.Contains(t, pages["nsqd.8"], "NSQD_CLUSTER_TOKEN")
	require.NotContains(t, pages, "nsqctl-man.1")
	leaves(newRoot(), func(cmd *cobra.Command) {
		if !cmd.Hidden {
			require.Contains(t, pages, strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1")
		}
	})
	for name, page := range pages {
		require.Contains(t, page, "lockstep 1.2.3", name)
		require.Contains(t, page, "1970", name)
		require.Greater(t, len(page), 300, name)
	}
}
