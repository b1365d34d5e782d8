package clustercmd

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
	"github.com/lockstepmq/lockstep/internal/test/testkit/wait"
)

// TestInvite: the command sends what was asked for, and prints until when the broker may join.
func TestInvite(t *testing.T) {
	until := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	shown := until.Local().Format(time.DateTime)
	asked := make(chan string, 1)
	at := "--nsqd-http-address=" + clitest.Answering(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.RequestURI()
		switch {
		case r.Method == http.MethodGet:
			_, _ = w.Write([]byte(`{"invitations":[{"node":"n4","until":"2030-01-02T03:04:05Z"}]}`))
		case r.FormValue("withdraw") != "":
			_, _ = w.Write([]byte(`{"node":"n4"}`))
		default:
			_, _ = w.Write([]byte(`{"node":"n4","until":"2030-01-02T03:04:05Z"}`))
		}
	})
	for _, row := range []struct {
		args           []string
		request, print string
	}{
		{[]string{"n4"}, "POST /v1/cluster/invite?for=1h0m0s&node=n4", "n4 may join until " + shown + "\n"},
		{[]string{"n4", "--for", "24h"}, "POST /v1/cluster/invite?for=24h0m0s&node=n4", shown},
		{[]string{"n4", "--withdraw"}, "POST /v1/cluster/invite?node=n4&withdraw=true", "n4 may not join"},
		{nil, "GET /v1/cluster/invite", "n4      " + shown},
	} {
		out, err := run(t, wait.Limit, append([]string{"cluster", "invite", at}, row.args...)...)
		require.NoError(t, err)
		require.Equal(t, row.request, wait.For(t, asked, "a request"))
		require.Contains(t, out, row.print)
	}
	_, err := run(t, wait.Limit, "cluster", "invite", at, "--withdraw")
	require.ErrorContains(t, err, "need the name of a broker")
}
