package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// A trace names the state of a message in the log and in each channel.
func TestTracePrints(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "/v1/trace?id=5a10000000000007&topic=orders", r.URL.String())
		_ = json.NewEncoder(w).Encode(api.MessageTrace{
			ID: "5a10000000000007", Topic: "orders", Sequence: 7, State: api.TraceCommitted, Time: 1, Bytes: 4,
			Header: json.RawMessage("{\"region\":\"eu\u009b31m\",\"##id\":\"order-7\"}"), // a terminal takes U+009B for the beginning of a command
			Leader: "n1", Epoch: 3, Replicas: []ident.Node{"n1", "n2", "n3"}, ISR: []ident.Node{"n1", "n2"},
			Channels: []api.ChannelTrace{
				{Channel: "billing", State: api.TraceInFlight, Attempts: 2, Deadline: 1, Clients: []string{"192.0.2.1:9"}},
				{Channel: "audit", State: api.TraceFinished},
			},
		})
	}))
	defer s.Close()
	root, out := newRoot(), new(strings.Builder)
	root.SetOut(out)
	root.SetArgs([]string{"trace", "5a10000000000007", "--topic", "orders", "--nsqd-http-address", strings.TrimPrefix(s.URL, "http://")})
	require.NoError(t, root.ExecuteContext(t.Context()))
	require.Contains(t, out.String(), "message 5a10000000000007 of orders/0, sequence 7: committed\n")
	require.Contains(t, out.String(), `header {"region":"eu\u009b31m","##id":"order-7"}`+"\n")
	require.Contains(t, out.String(), "leader n1, epoch 3, in sync n1,n2 of n1,n2,n3\n")
	require.Regexp(t, `billing +in flight +2 +\S+ +192\.0\.2\.1:9\n`, out.String())
	require.Regexp(t, `audit +finished +0 +- +-\n`, out.String())
}
