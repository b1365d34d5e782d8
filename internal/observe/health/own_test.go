package health_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/health"
)

const (
	soon   = 14 * 24 * 3600.0 // s
	lately = 5 * 60.0
	anHour = 3600.0
)

// TestAlarmsOfReports: each fault that brokers report of themselves, at its threshold and beyond it.
func TestAlarmsOfReports(t *testing.T) {
	ago := func(s float64) *float64 { return &s }
	for name, c := range map[string]struct {
		own   health.Own
		state health.State
		code  string // "": none
		text  string
	}{
		"nothing reported":              {health.Own{}, health.Healthy, "", ""},
		"a certificate for 15 days":     {health.Own{CertificateSeconds: map[string]float64{"client": soon + 1}}, health.Healthy, "", ""},
		"a certificate for 13 days":     {health.Own{CertificateSeconds: map[string]float64{"client": soon - 1}}, health.Degraded, health.CertificateExpires, "the client certificate of n2 expires in 13 days"},
		"a certificate for an hour":     {health.Own{CertificateSeconds: map[string]float64{"rpc": anHour}}, health.Degraded, health.CertificateExpires, "the rpc certificate of n2 expires in 60 minutes"},
		"a certificate of yesterday":    {health.Own{CertificateSeconds: map[string]float64{"rpc": -24 * anHour, "client": 2 * soon}}, health.Degraded, health.CertificateExpires, "the rpc certificate of n2 expired 24 hours ago"},
		"a certificate without its key": {health.Own{CertificateSeconds: map[string]float64{"rpc": 2 * soon}, CertificateFaults: map[string]string{"rpc": "its private key is missing"}}, health.Degraded, health.CertificateUnusable, "the rpc certificate of n2 cannot be used: its private key is missing"},
		"clients refused":               {health.Own{RefusedSecondsAgo: map[string]float64{"tcp_connections": lately - 1, "tcp_login": lately}}, health.Degraded, health.ClientsRefused, "n2 refuses clients, limit tcp_connections"},
		"clients refused before":        {health.Own{RefusedSecondsAgo: map[string]float64{"tcp_connections": lately}}, health.Healthy, "", ""},
		"changed bytes":                 {health.Own{CorruptSecondsAgo: ago(anHour - 1)}, health.Degraded, health.NetworkCorrupts, "bytes change on the way to n2"},
		"changed bytes before":          {health.Own{CorruptSecondsAgo: ago(anHour)}, health.Healthy, "", ""},
		"a database of 80 %":            {health.Own{EtcdInUseBytes: 800, EtcdQuotaBytes: 1000}, health.Healthy, "", ""},
		"a database that fills":         {health.Own{EtcdInUseBytes: 801, EtcdQuotaBytes: 1000}, health.Degraded, health.MetadataFull, "the embedded etcd of n2 has used 80 % of its quota"},
		"a full database":               {health.Own{EtcdInUseBytes: 700, EtcdQuotaBytes: 1000, EtcdRefuses: true}, health.Degraded, health.MetadataFull, "the embedded etcd of n2 is full and refuses all writes"},
		"an etcd outside":               {health.Own{}, health.Healthy, "", ""},
		"a slow write":                  {health.Own{JournalBusySeconds: 1, LoopBusySeconds: 1}, health.Healthy, "", ""},
		"a write that hangs":            {health.Own{JournalBusySeconds: 1.01}, health.Degraded, health.BrokerHangs, "1 broker hangs"},
		"nobody else leads":             {health.Own{JournalBusySeconds: 5.01}, health.Unsafe, health.BrokerHangs, "1 broker hangs"},
		"a loop that hangs":             {health.Own{LoopBusySeconds: 1.01}, health.Degraded, health.BrokerHangs, "1 broker hangs"},
	} {
		t.Run(name, func(t *testing.T) {
			r := health.Assess(three(), nil, map[ident.Node]health.Own{"n1": {}, "n2": c.own})
			require.Equal(t, c.state, r.State)
			if c.code == "" {
				require.Empty(t, r.Alarms)
				return
			}
			require.Len(t, r.Alarms, 1)
			require.Equal(t, c.code, r.Alarms[0].Code)
			require.Contains(t, r.Alarms[0].Text, c.text)
			require.Equal(t, []string{"n2"}, r.Alarms[0].Where)
			require.NotEmpty(t, r.Alarms[0].Do)
		})
	}
}

// TestAlarmOfIdleChannels: it names each channel, and when it will be deleted.
func TestAlarmOfIdleChannels(t *testing.T) {
	at := time.Date(2026, 11, 26, 12, 4, 5, 0, time.UTC).UnixMilli()
	own := health.Own{IdleChannelCount: 7}
	for _, channel := range []string{"a", "b", "c", "d"} {
		own.IdleChannels = append(own.IdleChannels, api.IdleChannel{Topic: "orders", Channel: channel, IdleMS: 72 * 3600_000, DeletesAtMS: at})
	}
	r := health.Assess(three(), nil, map[ident.Node]health.Own{"n1": {}, "n2": own})
	require.Equal(t, health.Degraded, r.State)
	require.Len(t, r.Alarms, 1)
	require.Equal(t, health.ChannelIdle, r.Alarms[0].Code)
	require.Equal(t, []string{"orders/a", "orders/b", "orders/c", "orders/d"}, r.Alarms[0].Where)
	require.Equal(t, "channel orders/a will be deleted with its messages at 2026-11-26 12:04:05 UTC: unused for 3 days; "+
		"channel orders/b will be deleted with its messages at 2026-11-26 12:04:05 UTC: unused for 3 days; "+
		"channel orders/c will be deleted with its messages at 2026-11-26 12:04:05 UTC: unused for 3 days; and 4 more", r.Alarms[0].Text)
	require.Contains(t, r.Alarms[0].Do, "--channel-idle-after 0s")
}

// TestAlarmOfHeldPolicies: it names each channel, its owner and the topic.
func TestAlarmOfHeldPolicies(t *testing.T) {
	own := health.Own{HeldPolicyCount: 5}
	for _, channel := range []string{"a", "b", "c", "d"} {
		own.HeldPolicies = append(own.HeldPolicies, api.HeldPolicy{Topic: "orders", Channel: channel, DeadLetterTopic: "dead", Owner: "alice"})
	}
	r := health.Assess(three(), nil, map[ident.Node]health.Own{"n1": {}, "n2": own})
	require.Equal(t, health.Degraded, r.State)
	require.Len(t, r.Alarms, 1)
	require.Equal(t, health.PolicyHeld, r.Alarms[0].Code)
	require.Equal(t, []string{"orders/a", "orders/b", "orders/c", "orders/d"}, r.Alarms[0].Where)
	require.Equal(t, "channel orders/a holds its dead messages: user alice set its policy and may no longer publish to dead; "+
		"channel orders/b holds its dead messages: user alice set its policy and may no longer publish to dead; "+
		"channel orders/c holds its dead messages: user alice set its policy and may no longer publish to dead; and 2 more", r.Alarms[0].Text)
	require.Contains(t, r.Alarms[0].Do, "nsqctl acl grant")
}

// TestAFullDatabaseNeedsNoMembers: to start members does not help metadata that is silent because its
// database is full.
func TestAFullDatabaseNeedsNoMembers(t *testing.T) {
	v := three()
	v.MetadataUnheardMS = 5000
	full := map[ident.Node]health.Own{"n2": {EtcdInUseBytes: 900, EtcdQuotaBytes: 1000, EtcdRefuses: true}}
	r := health.Assess(v, nil, full)
	require.Len(t, r.Alarms, 2)
	for _, a := range r.Alarms {
		require.NotContains(t, a.Do, "members", a.Code)
		require.Contains(t, a.Do, "delete its keys with etcdctl", "topics cannot be deleted")
	}
	require.Contains(t, health.Assess(v, nil, nil).Alarms[0].Do, "start the missing members")
	v = three()
	for i := range v.Brokers { // their registrations end, and etcd grants no new ones
		v.Brokers[i].Alive = false
	}
	r = health.Assess(v, nil, full)
	require.Len(t, r.Alarms, 3) // no_leader, no_brokers, metadata_full
	for _, a := range r.Alarms {
		require.NotContains(t, a.Do, "start", a.Code)
		require.Contains(t, a.Do, "delete its keys with etcdctl", "topics cannot be deleted")
	}
	require.Contains(t, health.Assess(v, nil, nil).Alarms[0].Do, "start the dead brokers")
	fills := map[ident.Node]health.Own{"n2": {EtcdInUseBytes: 900, EtcdQuotaBytes: 1000}}
	require.Contains(t, health.Assess(three(), nil, fills).Alarms[0].Do, "delete topics and channels", "it takes writes still")
}

// TestOneAlarmForManyBrokers names three of them in its text, and all in its places.
func TestOneAlarmForManyBrokers(t *testing.T) {
	own := map[ident.Node]health.Own{}
	for _, n := range []ident.Node{"n1", "n2", "n3"} {
		own[n] = health.Own{CertificateSeconds: map[string]float64{"client": 1, "rpc": 1}}
	}
	r := health.Assess(three(), nil, own)
	require.Len(t, r.Alarms, 1)
	require.Equal(t, []string{"n1", "n2", "n3"}, r.Alarms[0].Where)
	require.Contains(t, r.Alarms[0].Text, "; and 3 more")
}
