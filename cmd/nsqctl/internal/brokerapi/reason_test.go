package brokerapi

import (
	"net"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReasonsAreForOperators: an address that does not answer is named with what to look at, and not
// with a function of Go.
func TestReasonsAreForOperators(t *testing.T) {
	text := func(tls bool, address string) string {
		c := client(address)
		c.TLS = tls
		_, err := c.CallAny(t.Context(), "GET", "/v1/cluster", nil)
		require.Error(t, err)
		for _, word := range []string{"dial tcp", "Get \"", "malformed", "parse ", "EOF", "x509", "http:"} {
			require.NotContains(t, err.Error(), word)
		}
		require.Contains(t, err.Error(), address)
		return err.Error()
	}
	require.Contains(t, text(false, deadAddress), "nothing listens there: the broker is not started")
	require.Contains(t, text(false, "nohost.invalid:4151"), "nohost.invalid")
	require.Contains(t, text(false, broker(t, hangsUp)), "closed the connection without an answer")
	nsq := raw(t, "E_BAD_PROTOCOL\n")
	require.Contains(t, text(false, nsq), "does not speak HTTP: it may be the TCP port")
	require.Contains(t, text(true, broker(t, hangsUp)), "does not speak TLS")
	secure := httptest.NewTLSServer(nil)
	defer secure.Close()
	secure.Config.ErrorLog = nil
	require.Contains(t, text(true, secure.Listener.Addr().String()), "no known authority signed it; --tls-root-ca-file")
}

// raw is a server that answers every connection with the same bytes.
func raw(t *testing.T, answer string) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(answer))
			_, _ = c.Read(make([]byte, 1<<10))
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}
