package cli

import (
	"os"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
)

// TestAnotherFileIsNoDevCluster: a file that is not a cluster's leaves the default addresses as they are.
func TestAnotherFileIsNoDevCluster(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("data", 0o755))
	for _, other := range []string{"", "{}", "no cluster of ours"} {
		require.NoError(t, os.WriteFile("data/cluster.json", []byte(other), 0o600))
		tg := &Target{TCP: []string{tcpAddress}, Client: brokerapi.Client{Addresses: []string{HTTPAddress}}}
		tg.preferDev(&cobra.Command{})
		require.Equal(t, &Target{TCP: []string{tcpAddress}, Client: brokerapi.Client{Addresses: []string{HTTPAddress}}}, tg, "%q", other)
	}
}
