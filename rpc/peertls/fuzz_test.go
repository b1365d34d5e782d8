package peertls_test

import (
	"crypto/x509"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/rpc/peertls"
)

// FuzzNames: a certificate with any names passes only with a broker's, for any pattern, and the
// text of a refusal, which stands in the log, is short.
func FuzzNames(f *testing.F) {
	for _, seed := range [][3]string{
		{"", "n1", "n1"}, {"", "n9,shop.example", "n1"}, {"*.brokers.example", "n1.brokers.example", "n1"}, {"*.brokers.example", "*.brokers.example", "n1"},
		{"*.brokers.example", ".brokers.example", "n1"}, {"a*b", "ab", ""}, {"**", "x", "n1"}, {"x", "x", "n1"}, {"", "", ""}, {"", strings.Repeat("n1 ", 300), "n1"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, pattern, dns, node string) {
		names, err := peertls.NewNames(pattern, "n1", "n2")
		if err != nil {
			return
		}
		cert := &x509.Certificate{DNSNames: strings.Split(dns, ","), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
		any, one := names.CheckAny(cert), names.Check(cert, node)
		for _, err := range []error{any, one} {
			require.True(t, err == nil || errors.Is(err, peertls.ErrName))
		}
		if pattern == "" || pattern == "*" {
			known := slices.Contains(cert.DNSNames, "n1") || slices.Contains(cert.DNSNames, "n2")
			require.Equal(t, known, any == nil, "%q", dns)
			require.Equal(t, slices.Contains(cert.DNSNames, node), one == nil, "%q for %q", dns, node)
		}
		cert.ExtKeyUsage = cert.ExtKeyUsage[1:] // a client's
		require.Error(t, names.CheckAny(cert))
		require.Error(t, names.Check(cert, node))
	})
}
