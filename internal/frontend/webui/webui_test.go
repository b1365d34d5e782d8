package webui_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/frontend/webui"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/observe/health"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a fake: every broker leads one topic, and n3 does not answer.
type cluster struct {
	view  api.ClusterView
	takes time.Duration
}

func (c cluster) Cluster() api.ClusterView {
	time.Sleep(c.takes)
	return c.view
}

func (c cluster) TopicsLedBy(ctx context.Context, n ident.Node) ([]api.TopicStats, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if n == "n3" {
		return nil, errors.New("no answer")
	}
	return []api.TopicStats{{TopicName: "of " + string(n), Depth: 3}}, nil
}

// noReports is what brokers of an older build say of themselves.
func noReports(context.Context) map[ident.Node]health.Own { return nil }

func TestOverviewAsksEveryLiveBroker(t *testing.T) {
	h := webui.New(cluster{view: api.ClusterView{Self: "n1", Brokers: []api.BrokerView{
		{Name: "n1", Alive: true}, {Name: "n2", Alive: true}, {Name: "n3", Alive: true}, {Name: "n4"},
	}}}, noReports)
	w := httptest.NewRecorder()
	h.Data(w, httptest.NewRequest(http.MethodGet, "/ui/data", nil))
	var o webui.Overview
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &o))
	require.Len(t, o.Topics, 2)
	require.EqualValues(t, 3, o.Topics[0].Depth)
	require.Equal(t, []string{"n3: no answer"}, o.Silent, "a dead broker is not asked")
	require.Equal(t, health.Degraded, o.Health.State)
	var codes []string
	for _, a := range o.Health.Alarms {
		codes = append(codes, a.Code)
	}
	require.Equal(t, []string{health.BrokerDead, health.NoController, health.StatisticsSilent}, codes)
}

// While no controller is elected the cluster view takes longer than the limit of one broker.
// That must not use up the time of the brokers' queries.
func TestASlowViewSilencesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := webui.New(cluster{view: api.ClusterView{Brokers: []api.BrokerView{{Name: "n1", Alive: true}}}, takes: 1500 * time.Millisecond}, noReports)
		w := httptest.NewRecorder()
		h.Data(w, httptest.NewRequest(http.MethodGet, "/ui/data", nil))
		var o webui.Overview
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &o))
		require.Empty(t, o.Silent)
	})
}
