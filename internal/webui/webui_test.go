package webui_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/internal/webui"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// directory is a cluster as it is told.
type directory struct {
	edge.Directory // only Cluster is asked for
	view           edge.ClusterView
}

func (d directory) Cluster() edge.ClusterView { return d.view }

func broker(t *testing.T, topic string) edge.BrokerView {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"topics":[{"topic_name":%q,"depth":3}]}`, topic)
	}))
	t.Cleanup(s.Close)
	return edge.BrokerView{Name: "n1", Alive: true, HTTPAddress: s.Listener.Addr().String()}
}

func TestOverviewAsksEveryLiveBroker(t *testing.T) {
	refusing := broker(t, "")
	refusing.Name, refusing.HTTPAddress = "n3", "127.0.0.1:1"
	h := webui.New(directory{view: edge.ClusterView{Self: "n1", Brokers: []edge.BrokerView{
		broker(t, "orders"), broker(t, "invoices"), refusing, {Name: "n4", HTTPAddress: "127.0.0.1:1"},
	}}})
	w := httptest.NewRecorder()
	h.Data(w, httptest.NewRequest(http.MethodGet, "/ui/data", nil))
	var o webui.Overview
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &o))
	require.Len(t, o.Topics, 2)
	require.EqualValues(t, 3, o.Topics[0].Depth)
	require.Len(t, o.Silent, 1, "a dead broker is not asked")
	require.Contains(t, o.Silent[0], "n3: ")
}

func TestPageNeedsNothingFromElsewhere(t *testing.T) {
	w := httptest.NewRecorder()
	webui.New(directory{}).Page(w, httptest.NewRequest(http.MethodGet, "/ui", nil))
	require.Contains(t, w.Header().Get("Content-Type"), "text/html")
	require.NotRegexp(t, regexp.MustCompile(`(?i)(src|href|url)\s*[=(]\s*["']?https?:`), w.Body.String())
	require.NotContains(t, w.Body.String(), "innerHTML", "names come from clients")
}
