package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
)

// holding is a broker with the replica of orders/0 from an offset on: batches of ten bytes,
// the checksum of each by crc.
func holding(t *testing.T, start, end int64, crc func(offset int64) uint32) string {
	return clitest.Answering(t, func(w http.ResponseWriter, _ *http.Request) {
		batches := []map[string]any{}
		for at := start; at < end; at += 10 {
			batches = append(batches, map[string]any{"offset": at, "bytes": 10, "epoch": 1, "crc": crc(at)})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"start": start, "committed": end, "end": end, "next": end, "batches": batches})
	})
}

// growing is holding while messages are published: each look finds another batch.
func growing(t *testing.T, end int64, crc func(offset int64) uint32) string {
	return clitest.Answering(t, func(w http.ResponseWriter, r *http.Request) {
		end += 10
		from, _ := strconv.ParseInt(r.FormValue("from"), 10, 64)
		batches := []map[string]any{}
		for ; from < end && len(batches) < 3; from += 10 {
			batches = append(batches, map[string]any{"offset": from, "bytes": 10, "epoch": 1, "crc": crc(from)})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"start": 0, "committed": end, "end": end, "next": from, "batches": batches})
	})
}

// TestCheckWhileMessagesArePublished: the replicas are compared up to one end, and a difference below it is found.
func TestCheckWhileMessagesArePublished(t *testing.T) {
	same := func(offset int64) uint32 { return uint32(offset) }
	out, err := checkOf(t, growing(t, 100, same), growing(t, 70, same), growing(t, 160, same))
	require.Error(t, err, "one is behind: %s", out)
	for range 3 {
		out, err = checkOf(t, growing(t, 100, same), growing(t, 90, same), growing(t, 80, same))
		require.NoError(t, err, out)
		require.Contains(t, out, "110 bytes on [a b c]: equal")
	}
	out, err = checkOf(t, growing(t, 100, same), growing(t, 100, func(offset int64) uint32 { return uint32(offset) + uint32(offset/100) }))
	require.Error(t, err)
	require.Contains(t, out, "differ at offset 100")
	out, err = checkOf(t, growing(t, 100, same), growing(t, 100, func(offset int64) uint32 { return uint32(offset) + uint32(offset/110) }))
	require.NoError(t, err, "a batch that came later: %s", out)
}

// checkOf compares the replicas at these addresses.
func checkOf(t *testing.T, addresses ...string) (string, error) {
	return run(t, time.Minute, "check", "orders", "--wait", "0s", "--nsqd-http-address", checkedCluster(t, addresses...))
}

// checkedCluster is a cluster with the replicas at these addresses.
func checkedCluster(t *testing.T, addresses ...string) (address string) {
	var v api.ClusterView
	p := api.PartitionView{}
	for i, address := range addresses {
		n := ident.Node(string(rune('a' + i)))
		v.Brokers = append(v.Brokers, api.BrokerView{Name: n, Alive: true, HTTPAddress: address})
		p.Replicas = append(p.Replicas, n)
	}
	v.Topics = []api.TopicView{{Topic: "orders", Partitions: []api.PartitionView{p}}}
	return clitest.Answering(t, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(v) })
}

// Each replica removes whole files by retention. A replica whose files begin elsewhere has
// more or fewer messages that all channels have passed, and counts as equal.
func TestCheckComparesWhatAllReplicasStillHold(t *testing.T) {
	same := func(offset int64) uint32 { return uint32(offset) }
	out, err := checkOf(t, holding(t, 30, 100, same), holding(t, 0, 100, same), holding(t, 50, 100, same))
	require.NoError(t, err, out)
	require.Contains(t, out, "50 bytes on [a b c]: equal")
	out, err = checkOf(t, holding(t, 100, 100, same), holding(t, 0, 100, same))
	require.NoError(t, err, out)
	_, err = checkOf(t, holding(t, 30, 100, same), holding(t, 0, 60, same))
	require.Error(t, err, "one lacks the end")
	out, err = checkOf(t, holding(t, 30, 100, same), holding(t, 0, 100, func(offset int64) uint32 { return uint32(offset) + uint32(offset/90) }))
	require.Error(t, err)
	require.Contains(t, out, "differ at offset 90")
}
