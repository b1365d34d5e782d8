package devcmd

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/devcluster"
)

func TestMajorityHint(t *testing.T) {
	for _, test := range []struct {
		members int
		dead    []string
		want    string
	}{
		{3, []string{"n2", "n3"}, "1 of 3 members of the metadata run; start n2 or n3"},
		{3, []string{"n1", "n2", "n3"}, "0 of 3 members of the metadata run; start 2 of n1, n2, n3"},
		{3, []string{"n2"}, ""},
		{5, []string{"n1", "n2", "n3"}, "2 of 5 members of the metadata run; start n1 or n2 or n3"},
		{2, []string{"n2"}, "1 of 2 members of the metadata run; start n2"},
		{1, []string{"n1"}, "0 of 1 members of the metadata run; start n1"},
		{0, nil, ""}, // external etcd
	} {
		require.Equal(t, test.want, majorityHint(test.members, test.dead))
	}
}

// TestDevVerbsRequireNames: a verb without a name does not apply to all brokers.
func TestDevVerbsRequireNames(t *testing.T) {
	dir := t.TempDir()
	_, err := devcluster.New(devcluster.Config{Nodes: 2, DataDir: dir, BasePort: 20000, NSQD: "/bin/false"})
	require.NoError(t, err)
	for _, verb := range []string{"kill", "stop", "start", "restart"} {
		_, err := run(t, time.Minute, "dev", verb, "--data-dir", dir)
		require.ErrorContains(t, err, "--all", verb)
		_, err = run(t, time.Minute, "dev", verb, "n1", "--all", "--data-dir", dir)
		require.ErrorContains(t, err, "give names or --all, not both", verb)
		_, err = run(t, time.Minute, "dev", verb, "n1", "n7", "--data-dir", dir)
		require.ErrorContains(t, err, `no broker "n7"`, verb)
	}
	_, err = run(t, time.Minute, "dev", "kill", "n1", "--data-dir", dir)
	require.ErrorContains(t, err, "n1 was never started")
}

// "dev kil n2" starts no second cluster in the directory of a running one.
func TestDevRefusesUnknownVerbs(t *testing.T) {
	dir := t.TempDir()
	root := newRoot()
	root.SetArgs([]string{"dev", "kil", "n2", "--data-dir", dir, "--nsqd", "/bin/false", "--base-port", "39150"})
	root.SetOut(new(strings.Builder))
	require.ErrorContains(t, root.ExecuteContext(t.Context()), `unknown command "kil"`)
	require.NoFileExists(t, filepath.Join(dir, "cluster.json"))
}
