package peertls_test

import (
	"crypto/x509"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/rpc/peertls"
)

var both = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}

// cert is a certificate as the standard library has verified it.
func cert(usages []x509.ExtKeyUsage, dnsNames ...string) *x509.Certificate {
	return &x509.Certificate{SerialNumber: big.NewInt(7), DNSNames: dnsNames, ExtKeyUsage: usages}
}

func TestACertificateBelongsToABroker(t *testing.T) {
	clientOnly, serverOnly := both[1:], both[:1]
	for name, test := range map[string]struct {
		pattern string
		known   []string
		cert    *x509.Certificate
		isN2    bool // it belongs to n2
		isAny   bool // it belongs to a broker
		says    string
	}{
		"its own":                 {known: []string{"n1", "n2"}, cert: cert(both, "n2.example", "n2"), isN2: true, isAny: true},
		"without usages":          {known: []string{"n2"}, cert: cert(nil, "n2"), isN2: true, isAny: true},
		"for any usage":           {known: []string{"n2"}, cert: cert([]x509.ExtKeyUsage{x509.ExtKeyUsageAny}, "n2"), isN2: true, isAny: true},
		"another broker's":        {known: []string{"n1", "n2"}, cert: cert(both, "n1"), isAny: true, says: `"n2"`},
		"a client's":              {known: []string{"n1", "n2"}, cert: cert(clientOnly, "shop"), says: `lacks the DNS name "n2"`},
		"a client's of that name": {known: []string{"n2"}, cert: cert(clientOnly, "n2"), says: "serverAuth"},
		"a server's of that name": {known: []string{"n2"}, cert: cert(serverOnly, "n2"), says: "clientAuth"},
		"of a service":            {known: []string{"n1", "n2"}, cert: cert(both, "shop.example"), says: "shop.example"},
		"without names":           {known: []string{"n2"}, cert: cert(both), says: "lacks"},
		"of a wildcard":           {known: []string{"n2"}, cert: cert(both, "*", "*.example"), says: "lacks"},
		"in other letters":        {known: []string{"n2"}, cert: cert(both, "N2"), says: "lacks"},
		"of the pattern":          {pattern: "*.brokers.example", cert: cert(both, "n2.brokers.example"), isN2: true, isAny: true},
		"a later broker's":        {pattern: "*.brokers.example", cert: cert(both, "n9.brokers.example"), isAny: true, says: "n2.brokers.example"},
		"outside the pattern":     {pattern: "*.brokers.example", known: []string{"n2"}, cert: cert(both, "n2"), says: "n2.brokers.example"},
		"of all brokers":          {pattern: "*.brokers.example", cert: cert(both, "*.brokers.example"), isN2: true, isAny: true},
		"of a wider wildcard":     {pattern: "*.brokers.example", cert: cert(both, "*.example"), says: "n2.brokers.example"},
		"the bare suffix":         {pattern: "*.brokers.example", cert: cert(both, ".brokers.example"), says: "n2.brokers.example"},
		"around the star":         {pattern: "broker-*.example", cert: cert(both, "broker-n2.example"), isN2: true, isAny: true},
	} {
		names, err := peertls.NewNames(test.pattern, test.known...)
		require.NoError(t, err)
		require.Equal(t, test.isN2, names.Check(test.cert, "n2") == nil, name)
		require.Equal(t, test.isAny, names.CheckAny(test.cert) == nil, name)
		if !test.isN2 {
			err := names.Check(test.cert, "n2")
			require.ErrorIs(t, err, peertls.ErrName, name)
			require.ErrorContains(t, err, test.says, name)
			require.ErrorContains(t, err, "serial 7", name)
		}
	}
	for _, bad := range []string{"brokers.example", "*.*.example"} {
		_, err := peertls.NewNames(bad)
		require.Error(t, err, bad)
	}
}

// TestKnownNodesGrow: a broker that joins is admitted when an operator or the members name it.
func TestKnownNodesGrow(t *testing.T) {
	names, err := peertls.NewNames("", "n1")
	require.NoError(t, err)
	n3, n4 := cert(both, "n3"), cert(both, "n4")
	require.Error(t, names.CheckAny(n3))
	members := []string{"n1"}
	names.SetMembers(func() []string { return members })
	require.Error(t, names.CheckAny(n3))
	members = append(members, "n3", "") // a member that has never run has no name
	require.NoError(t, names.CheckAny(n3))
	require.Error(t, names.CheckAny(cert(both, "")))
	require.Error(t, names.CheckAny(n4))
	names.SetNodes([]string{"n1", "n4"})
	require.NoError(t, names.CheckAny(n4))
}

// TestALongCertificateDoesNotFillTheLog: the text of a refusal is bounded.
func TestALongCertificateDoesNotFillTheLog(t *testing.T) {
	var many []string
	for range 10_000 {
		many = append(many, "name.example")
	}
	names, err := peertls.NewNames("")
	require.NoError(t, err)
	require.Less(t, len(names.Check(cert(both, many...), "n2").Error()), 600)
}
