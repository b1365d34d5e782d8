package recovercmd

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The confirmation is the broker's name, which must be that of the data path.
func TestRecoverMetadataRefusesAnotherBrokersPath(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "node.json"), []byte(`{"v":1,"node":"n3","boot":1}`), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "etcd/member/wal"), 0o700))
	root := newRoot()
	root.SetArgs([]string{"recover", "metadata", "--data-path", dir, "--node-name", "n9", "--confirm", "n9"})
	require.ErrorContains(t, root.ExecuteContext(t.Context()), `belongs to node "n3"`)
	require.NoFileExists(t, filepath.Join(dir, "etcd.before-recovery"))
}

// A wrong path is not reported as a running broker.
func TestRecoverMetadataNamesAMissingPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "typo")
	_, err := run(t, time.Minute, "recover", "metadata", "--data-path", dir, "--node-name", "n3", "--confirm", "n3")
	require.ErrorContains(t, err, "typo")
	require.NotContains(t, err.Error(), "still runs")
	require.NoDirExists(t, dir)
}

// If no replica has a message there is no range of messages.
func TestRecoverTopicSaysThatNothingIsLeft(t *testing.T) {
	for end, want := range map[int]string{0: "no replica that answers has a message", 5: "n3 has the most messages: 0 to 4"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(map[string]any{"topic": "orders", "replicas": []map[string]any{{"node": "n3", "end_sequence": end}}})
		}))
		out, err := run(t, time.Minute, "recover", "topic", "orders", "--nsqd-http-address", strings.TrimPrefix(s.URL, "http://"))
		s.Close()
		require.NoError(t, err)
		require.Contains(t, out, want)
		require.Contains(t, out, "nsqctl recover topic orders --partition 0 --from n3 --confirm orders/0")
	}
}
