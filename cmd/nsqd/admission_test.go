package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/config"
	"github.com/lockstepmq/lockstep/internal/test/testkit/certs"
)

// TestInvitationsThatAreNotNeeded: an operator who invites a broker where all are admitted is told so.
func TestInvitationsThatAreNotNeeded(t *testing.T) {
	ca := certs.New(t)
	ca.Issue("n1", "n1.brokers.example")
	files := []string{"--rpc-tls-cert=" + ca.File("n1.pem"), "--rpc-tls-key=" + ca.File("n1.key"), "--rpc-tls-ca=" + ca.File("ca.pem")}
	for want, args := range map[string][]string{
		"":                         files,
		"--etcd-endpoints":         append([]string{"--etcd-endpoints=http://127.0.0.1:1"}, files...),
		"without TLS":              nil,
		"for *.brokers.example is": append([]string{"--rpc-tls-name=*.brokers.example"}, files...),
	} {
		o, _, err := config.Load(source(append([]string{"--node-name=n1", "--require-users"}, args...)))
		require.NoError(t, err)
		r := peers{}
		require.NoError(t, r.load(o, nil))
		if want == "" {
			require.Empty(t, r.admitsAll(o))
		} else {
			require.Contains(t, r.admitsAll(o), want)
		}
	}
}
