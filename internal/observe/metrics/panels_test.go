package metrics

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPanels: the last row of the dashboard of a broker has the panels of the table. Each has the form of the panel "Uncommitted".
func TestPanels(t *testing.T) {
	const file = "../../../contrib/grafana/broker.json"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	board := decoded(t, text)
	all := board["panels"].([]any)
	titled := func(title string) int {
		return slices.IndexFunc(all, func(p any) bool { return p.(map[string]any)["title"] == title })
	}
	if i := titled("More"); i >= 0 {
		all = all[:i]
	}
	form, err := json.Marshal(all[titled("Uncommitted")])
	require.NoError(t, err)
	top, id := 0, 0
	for _, p := range all {
		at := p.(map[string]any)["gridPos"].(map[string]any)
		top, id = max(top, number(t, at["y"])+number(t, at["h"])), max(id, number(t, p.(map[string]any)["id"]))
	}
	all = append(all, map[string]any{"type": "row", "title": "More", "collapsed": false, "panels": []any{}, "id": id + 1,
		"gridPos": map[string]any{"x": 0, "y": top, "w": 24, "h": 1}})
	for i, p := range panels {
		d := define(p.metric, definitions[p.metric].Kind)
		panel := decoded(t, form)
		panel["title"], panel["description"], panel["id"] = p.title, d.Help, id+2+i
		panel["gridPos"] = map[string]any{"x": i % 3 * 8, "y": top + 1 + i/3*8, "w": 8, "h": 8}
		panel["fieldConfig"].(map[string]any)["defaults"].(map[string]any)["unit"] = p.unit
		target := panel["targets"].([]any)[0].(map[string]any)
		target["expr"], target["legendFormat"] = d.query(), strings.Join(append([]string{"{{instance}}"}, braced(d.Labels)...), " ")
		all = append(all, panel)
	}
	board["panels"] = all
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	require.NoError(t, e.Encode(board))
	if flag.Lookup("rewrite").Value.String() == "true" {
		require.NoError(t, os.WriteFile(file, out.Bytes(), 0o644))
		text = out.Bytes()
	}
	require.Equal(t, out.String(), string(text), "go test ./internal/observe/metrics -run TestPanels -rewrite")
}

// query shows a metric of the brokers that are chosen in the dashboard.
func (d definition) query() string {
	const chosen = `{cluster=~"$cluster", instance=~"$instance"}`
	switch d.Kind {
	case kindCounter:
		return fmt.Sprintf("rate(%s%s[$__rate_interval])", d.FullName(), chosen)
	case kindHistogram:
		return fmt.Sprintf("histogram_quantile(0.99, sum by (instance, le) (rate(%s_bucket%s[$__rate_interval])))", d.FullName(), chosen)
	}
	return d.FullName() + chosen
}

func braced(labels []string) (out []string) {
	for _, l := range labels {
		out = append(out, "{{"+l+"}}")
	}
	return out
}

func decoded(t *testing.T, text []byte) (v map[string]any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	require.NoError(t, d.Decode(&v))
	return v
}

func number(t *testing.T, v any) int {
	t.Helper()
	n, err := v.(json.Number).Int64()
	require.NoError(t, err)
	return int(n)
}
