package main

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/internal/api"
)

// TestTrashBytes: the metric has the bytes of deleted topics, until they are removed permanently.
func TestTrashBytes(t *testing.T) {
	t.Parallel()
	b := start(t)
	empty := regexp.MustCompile(`(?m)^lockstep_trash_bytes(\{[^}]*\})? 0$`)
	metrics := func() string {
		_, text := b.get("/metrics")
		return text
	}
	b.eventually("the feature level rises", func() bool {
		var v api.ClusterView
		_, text := b.get("/v1/cluster")
		return json.Unmarshal([]byte(text), &v) == nil && v.Level == metadata.Level
	})
	status, text := b.post("/pub?topic=thrown", "m")
	require.Equal(t, 200, status, text)
	require.Regexp(t, empty, metrics())
	status, text = b.post("/topic/delete?topic=thrown", "")
	require.Equal(t, 200, status, text)
	some := regexp.MustCompile(`(?m)^lockstep_trash_bytes(\{[^}]*\})? [1-9]`)
	b.eventually("the trash has the topic", func() bool { return some.MatchString(metrics()) })
	status, text = b.post("/v1/topic/purge?topic=thrown", "")
	require.Equal(t, 200, status, text)
	b.eventually("the trash is empty", func() bool { return empty.MatchString(metrics()) })
}
