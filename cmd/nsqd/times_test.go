package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd"
	"github.com/lockstepmq/lockstep/internal/config"
)

// TestRareHeartbeats: a broker whose heartbeats are rarer than another one's timeout is silent to it.
func TestRareHeartbeats(t *testing.T) {
	t.Parallel()
	_, endpoint := startExternalEtcd(t, etcd.TLS{})
	n1, flags := member(t, "n1", endpoint)
	n1.run(flags...)
	n2, flags := member(t, "n2", endpoint)
	n2.run(append(flags, "--peer-timeout=1m")...)
	n1.says("up=false")
	require.NotContains(t, n2.logged(), "up=false refused=false")
}

// TestTimesOfTheEmbeddedEtcd: a single member grants no lease shorter than an election.
func TestTimesOfTheEmbeddedEtcd(t *testing.T) {
	t.Parallel()
	o, _, err := config.Load(source([]string{"--insecure-clients", "--insecure-http", "--etcd-election-timeout=3s"}))
	require.NoError(t, err)
	etcd := (&process{o: o, clients: clients{standby: newStandby(logrus.New(), nil, 0)}}).etcdOptions()
	require.Equal(t, []time.Duration{300 * time.Millisecond, 3 * time.Second}, []time.Duration{etcd.Heartbeat, etcd.Election})
	b := prepare(t)
	b.run("--etcd-election-timeout=3s")
	b.ready()
	_, text := ask(t, b.http, http.MethodGet, "http://"+b.address(5)+"/members", "")
	require.Contains(t, text, `"peerURLs":["http://`+b.address(5)+`"]`, "--etcd-peer-address")
	require.Contains(t, text, `"clientURLs":["http://`+b.address(4)+`"]`, "--etcd-client-address")

	client, err := clientv3.New(clientv3.Config{Endpoints: []string{b.address(4)}, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer client.Close()
	leases, err := client.Leases(t.Context())
	require.NoError(t, err)
	require.Len(t, leases.Leases, 1)
	lease, err := client.TimeToLive(t.Context(), leases.Leases[0].ID)
	require.NoError(t, err)
	require.EqualValues(t, 5, lease.GrantedTTL, "one and a half times --etcd-election-timeout, where --session-ttl is 3 s")
}
