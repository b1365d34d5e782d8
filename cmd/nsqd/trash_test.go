package main

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTrashBytes: the metric has the bytes of deleted topics, until they are removed for good.
func TestTrashBytes(t *testing.T) {
	t.Parallel()
	b := start(t)
	empty := regexp.MustCompile(`(?m)^lockstep_trash_bytes(\{[^}]*\})? 0$`)
	metrics := func() string {
		_, text := b.get("/metrics")
		return text
	}
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
