package httpapi_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLookupForTheFork: the answers to which clients of the fork go. Without metainfo the answer is NSQ's.
func TestLookupForTheFork(t *testing.T) {
	s := newSite(t)
	s.expect(s.nsqd, "POST /topic/create?topic=t", "", "200")
	for _, h := range []string{"nsqd", "lookup"} {
		handler := s.nsqd
		if h == "lookup" {
			handler = s.lookup
		}
		var v struct {
			Producers  []map[string]any
			Partitions map[string]map[string]any
			Meta       map[string]any
		}
		require.NoError(t, json.Unmarshal([]byte(text(t, do(handler, "GET", "/lookup?topic=t&metainfo=true&access=w", ""))), &v))
		require.Len(t, v.Producers, 1)
		require.Equal(t, v.Producers[0], v.Partitions["0"])
		require.Equal(t, map[string]any{"partition_num": 1.0, "replica": 1.0, "extend_support": true}, v.Meta)
		require.Contains(t, text(t, do(handler, "GET", "/lookup?topic=t&metainfo=true&access=r&partition=1", "")), `"partitions":{}`)
		require.NotContains(t, text(t, do(handler, "GET", "/lookup?topic=t", "")), "partitions")
		s.expect(handler, "GET /lookup?topic=x&metainfo=true", "", message(404, "TOPIC_NOT_FOUND"))
		s.expect(handler, "GET /lookup?topic=t&metainfo=true&partition=x", "", message(400, "INVALID_ARG_PARTITION"))

		var l struct {
			LookupdNodes  []map[string]any `json:"lookupdnodes"`
			LookupdLeader map[string]any   `json:"lookupdleader"`
		}
		require.NoError(t, json.Unmarshal([]byte(text(t, do(handler, "GET", "/listlookup", ""))), &l))
		require.Len(t, l.LookupdNodes, 1)
		require.Equal(t, l.LookupdNodes[0], l.LookupdLeader)
		require.IsType(t, "", l.LookupdLeader["HttpPort"])
		require.Equal(t, v.Producers[0]["broadcast_address"], l.LookupdLeader["NodeIp"])
	}
}
