package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clitest"
)

func TestExitCodes(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "EXISTS", http.StatusConflict) }))
	defer refuses.Close()
	refusing := "--nsqd-http-address=" + refuses.Listener.Addr().String()
	good := "--nsqd-http-address=" + clitest.FakeBroker(t).Listener.Addr().String()
	for code, lines := range map[int][][]string{
		0: {{"stats", good}},
		cli.ExitUsage: {{"topics"}, {"pub"}, {"channel", "pause", "orders"}, {"pub", "--tpic", "x"}, {"stats", "-o", "xml"}, {"stats", "--interval", "soon"}, {"topic", "delte", "x"},
			{"migrate", "run"}, {"migrate", "status", "--from-lookupd-http-address=a", "--from-nsqd-http-address=b"}, {"migrate", "run", "--from-nsqd-http-address=b", "--max-in-flight=0"}},
		cli.ExitUnreachable: {{"stats", "--nsqd-http-address", "127.0.0.1:1"}, {"topic", "list", "--nsqd-http-address", "127.0.0.1:1,127.0.0.1:2"}},
		cli.ExitRefused:     {{"topic", "create", "orders", refusing}},
		cli.ExitNotFound:    {{"topic", "describe", "nope", good}, {"check", "nope", good}, {"stats", "--profile", "nope"}, {"cluster", "safe-to-stop", "n9", good}},
		cli.ExitFailed:      {{"dump", "nothing.seg"}},
	} {
		for _, line := range lines {
			_, err := run(t, time.Minute, line...)
			require.Equal(t, code, cli.ExitCode(t.Context(), cli.AsUsage(err)), "%q: %v", line, err)
		}
	}
	_, err := run(t, time.Minute, "channel", "pause", "orders")
	require.EqualError(t, err, "accepts 2 arg(s), received 1; usage: nsqctl channel pause TOPIC CHANNEL [flags]")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, cli.ExitInterrupted, cli.ExitCode(ctx, context.Canceled))
}
