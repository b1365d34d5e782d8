package guide

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/testkit/clusters"
	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

var digestLine = regexp.MustCompile(`digest [0-9a-f]{64}`)

// TestExportImportGuide exports a topic with headers, delays, a consumed channel and deferred messages, and imports
// it with the commands of the guide: the digests are equal, the channels continue where they were, a second import
// publishes nothing, one that is killed continues, and a damaged stream is refused.
func TestExportImportGuide(t *testing.T) {
	t.Parallel()
	e2etest.Processes(t)
	old, fresh := e2etest.Start(t, 1), e2etest.Start(t, 1)
	old.Create("orders", "billing", 3)
	old.Post(old.Brokers[0], "/channel/create", url.Values{"topic": {"orders"}, "channel": {"audit"}})
	policy := url.Values{"topic": {"orders"}, "channel": {"audit"}}
	old.Post(old.Brokers[0], "/v1/channel/policy", url.Values{
		"topic": {"orders"}, "channel": {"audit"}, "retry_backoff": {"2s,3,5m,0.5"}, "filter": {"!tag=none"},
	})
	const count = 3000
	for i := range count / 100 {
		var lines strings.Builder
		for j := range 100 {
			fmt.Fprintf(&lines, "m%05d %s\n", i*100+j, strings.Repeat("x", j))
		}
		resp, err := e2etest.Passing.Post(fmt.Sprintf("http://%s/mpub?topic=orders&key=%d&ttl=%s", old.Brokers[0].HTTP, i, time.Hour), "", strings.NewReader(lines.String()))
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, 200, resp.StatusCode)
	}
	resp, err := e2etest.Passing.Post("http://"+old.Brokers[0].HTTP+"/pub?topic=orders&defer=3600000", "", strings.NewReader("tomorrow\x00\xff"))
	require.NoError(t, err)
	_ = resp.Body.Close()
	finished := map[string]bool{}
	var requeued []string
	old.ConsumeFrom("orders", "billing", 1000, 1000, func(body string) time.Duration {
		if strings.HasSuffix(body, "7 xxxxxxx") && len(requeued) < 5 {
			requeued = append(requeued, body)
			return 50 * time.Minute
		}
		finished[body] = true
		return 0
	})
	require.NotEmpty(t, requeued)
	old.Whole("orders")

	g := e2etest.OpenGuide(t, "export-import.md", "old1.example:4151", old.Brokers[0].HTTP, "new1.example:4151", fresh.Brokers[0].HTTP)
	_, first := g.Must("export")
	require.Len(t, digestLine.FindAllString(first, -1), 3)
	out, _ := g.Must("verify")
	require.Contains(t, out, fmt.Sprintf("the stream is whole: %d messages of orders, 2 channels", count+1))
	refusesDamage(t, g)

	// The import is killed in the middle, and continues.
	killed := g.Command("import", "--max-rate=1000", "--batch=50")
	killed.Stderr = os.Stderr // it says why, if the import ends before it is killed
	require.NoError(t, killed.Start())
	e2etest.Within(t, e2etest.WaitLimit, "the first copies", func() bool {
		return fresh.HasTopic("orders") && len(fresh.PeekAll("orders")) > 200
	})
	_ = killed.Process.Kill()
	_ = killed.Wait()
	out, problems := g.Must("import")
	require.NotContains(t, out, " 0 were there", problems)
	_, second := g.Must("compare")
	require.Equal(t, digestLine.FindAllString(first, -1)[:3], digestLine.FindAllString(second, -1))
	out, _ = g.Must("import")
	require.Contains(t, out, fmt.Sprintf("0 messages published to orders, %d were there; 0 deferred messages", count+1))

	var kept, copied api.ChannelPolicy
	require.NoError(t, clusters.Get(old.HTTP, old.Brokers[0].HTTP, "/v1/channel/policy?"+policy.Encode(), &kept))
	require.NoError(t, clusters.Get(fresh.HTTP, fresh.Brokers[0].HTTP, "/v1/channel/policy?"+policy.Encode(), &copied))
	require.Equal(t, api.ChannelPolicy{BackoffMS: 2000, BackoffFactor: 3, BackoffMaxMS: 300_000, BackoffJitter: 0.5, Filter: "!tag=none"}, kept)
	require.Equal(t, kept, copied)
	before, after := old.PeekAll("orders"), fresh.PeekAll("orders")
	var here []e2etest.Logged
	for _, m := range after {
		if !strings.Contains(m.Origin(), "@") { // no copy for one channel
			here = append(here, m)
		}
	}
	require.Len(t, here, len(before))
	for i, m := range here {
		require.Equal(t, before[i].Body, m.Body)
		require.Equal(t, before[i].DeliverAt, m.DeliverAt)
	}

	rest := fresh.ConsumeFrom("orders", "billing", count-len(finished)-len(requeued), count+100, func(string) time.Duration { return 0 })
	again := 0
	for _, body := range rest {
		require.NotContains(t, requeued, body, "it is due in 50 minutes")
		if finished[body] {
			again++
		}
	}
	slices.Sort(rest)
	require.Len(t, slices.Compact(rest), count-len(finished)-len(requeued)+again, "what billing had not finished")
	require.LessOrEqual(t, again, 60, "no more than was in flight on three partitions")
	require.Equal(t, len(requeued)+1, deferredOn(fresh, "orders", "billing"), "the requeued ones, and the delayed one")
	require.Len(t, fresh.ConsumeFrom("orders", "audit", count, count+100, func(string) time.Duration { return 0 }), count)
	require.Equal(t, 1, deferredOn(fresh, "orders", "audit"))
}

// refusesDamage: a stream that is altered or torn is refused with its place, and nothing is published.
func refusesDamage(t *testing.T, g *e2etest.Guide) {
	t.Helper()
	name := filepath.Join(g.Dir, "orders.lsx")
	whole, err := os.ReadFile(name)
	require.NoError(t, err)
	altered := bytes.Clone(whole)
	body := bytes.Index(altered, []byte("m01500 "))
	require.Positive(t, body)
	altered[body] ^= 4
	for want, b := range map[string][]byte{"must be": altered, "it is torn": whole[:len(whole)-70]} {
		require.NoError(t, os.WriteFile(name, b, 0o600))
		_, problems, err := g.Run("import")
		require.Error(t, err)
		require.Contains(t, problems, "the stream is damaged at byte ")
		require.Contains(t, problems, want)
		require.Contains(t, problems, "nothing is published")
		_, problems, err = g.Run("verify")
		require.Error(t, err)
		require.Contains(t, problems, "the stream is damaged at byte ")
	}
	require.NoError(t, os.WriteFile(name, whole, 0o600))
}

// deferredOn is the number of delayed messages of a channel.
func deferredOn(c *e2etest.Cluster, topic, channel string) int {
	c.T.Helper()
	var v struct{ Messages []struct{ ID string } }
	require.NoError(c.T, c.Get(c.Brokers[0], "/v1/channel/deferred?topic="+topic+"&channel="+channel, &v))
	return len(v.Messages)
}
