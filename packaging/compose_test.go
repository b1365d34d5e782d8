package packaging

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

// project returns the compose file as docker compose reads it, with its check of the schema.
func project(t *testing.T) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{"compose.yaml"}, cli.WithEnv([]string{"VERSION=" + version}))
	require.NoError(t, err)
	p, err := options.LoadProject(context.Background())
	require.NoError(t, err)
	return p
}

// TestCompose: the services of the file, started with its settings, are a cluster with three
// replicas of every message, which survives the loss of a broker. Their network has names, as
// in compose. Published ports are not opened: the guide's commands use the containers' addresses.
func TestCompose(t *testing.T) {
	source, _ := release(t)
	p := podman(t)
	name := image(t, source, version)
	services := project(t)
	require.Equal(t, []string{"n1", "n2", "n3"}, services.ServiceNames())
	require.Equal(t, []string{"n1", "n2", "n3"}, services.VolumeNames())
	n := newNetwork(t, 3)
	n.names(func(i int) string { return services.ServiceNames()[i] }, 0, 0, 0)
	commands, published := guide(t)["compose-try"].script, map[string]bool{}
	for i, service := range services.ServiceNames() {
		s := services.Services[service]
		require.Equal(t, "lockstep:"+version, s.Image)
		require.Equal(t, "packaging/Dockerfile", s.Build.Dockerfile)
		require.True(t, s.ReadOnly)
		require.Equal(t, []string{"ALL"}, s.CapDrop)
		require.GreaterOrEqual(t, s.StopGracePeriod.String(), "45s")
		for _, port := range s.Ports {
			require.Equal(t, "127.0.0.1", port.HostIP)
			require.False(t, published[port.Published], "%s is published twice", port.Published)
			published[port.Published] = true
			address := fmt.Sprintf("%s:%d", addressOf(i, 0), port.Target)
			commands = strings.ReplaceAll(commands, port.HostIP+":"+port.Published, address)
		}
		flags := []string{"--read-only", "--cap-drop=ALL", "--security-opt=" + s.SecurityOpt[0], limits}
		for key, value := range s.Environment {
			flags = append(flags, fmt.Sprintf("-e %s='%s'", key, *value))
		}
		require.Len(t, s.Volumes, 1)
		volume := "lockstep-compose-" + s.Volumes[0].Source
		_, _ = try("", p+" volume rm -f "+volume)
		container(t, volume)
		t.Cleanup(func() { _, _ = try("", p+" rm -f -t 0 "+volume+"; "+p+" volume rm -f "+volume) })
		sh(t, "", fmt.Sprintf("%s run -d --name %s --network ns:/run/netns/%s --no-hosts -v %s:/etc/hosts:ro -v %s:%s %s %s",
			p, volume, n.namespace(i), n.hosts, volume, s.Volumes[0].Target, strings.Join(flags, " "), name))
	}
	// At once, as a user does after compose up: the guide's commands wait until the brokers are ready.
	require.NotContains(t, commands, "127.0.0.1", "every address is published")
	out := sh(t, "", "timeout 120 "+n.outside(commands))
	require.True(t, strings.HasPrefix(out, "OK"), out)
	require.Contains(t, out, `"broadcast_address":"n1"`)
	api := func(i int) string { return "curl -sSf http://" + addressOf(i, 0) + ":4151" }
	require.Contains(t, sh(t, "", n.outside(api(2)+"/v1/cluster")), `"replication_factor":3,"min_in_sync":2`)
	sh(t, "", p+" kill -s KILL lockstep-compose-n1")
	require.Equal(t, "OK", sh(t, "", n.outside(api(1)+"/pub?topic=greetings -d still-here")))
	require.Contains(t, sh(t, "", p+" exec lockstep-compose-n3 /usr/bin/nsqctl tail --topic greetings --channel readers -n 2"), "still-here")
}
