package cost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/test/devcluster"
)

const (
	brokers      = 3
	startTimeout = 2 * time.Minute
	askTimeout   = time.Minute
	pollEvery    = 20 * time.Millisecond
)

// patient are settings of brokers that may get no processor for seconds: none of them is declared dead for
// that, and no leadership moves between two turns.
var patient = []string{
	"--session-ttl=30s", "--etcd-election-timeout=1s", "--peer-timeout=10s", "--replica-timeout=15s",
	"--leader-hold=30s", "--min-free-disk-bytes=1", "--log-level=error",
}

// cluster is three brokers of one build.
type cluster struct {
	*devcluster.Cluster
	pids []int
	tcp  []string // the leader of the row's first topic first
}

// start starts a cluster and waits until it takes puts.
func start(ctx context.Context, nsqd, dir string) (*cluster, error) {
	port, err := freePorts()
	if err != nil {
		return nil, err
	}
	dev, err := devcluster.New(devcluster.Config{Nodes: brokers, DataDir: dir, BasePort: port, NSQD: nsqd, Args: patient, Tied: true})
	if err != nil {
		return nil, err
	}
	c := &cluster{Cluster: dev}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err = dev.StartAll(); err == nil {
		err = dev.Ready(ctx)
	}
	if err != nil {
		c.kill()
		return nil, err
	}
	for _, b := range dev.Brokers {
		c.pids = append(c.pids, b.PID)
	}
	return c, nil
}

// kill ends the brokers. Their data is not needed any longer.
func (c *cluster) kill() {
	for _, b := range c.Brokers {
		if b.PID != 0 {
			_ = c.Kill(b.Name)
		}
	}
}

// freePorts returns a base port whose ports nothing uses. A network of its own (.ci/isolated) makes sure that they stay free.
func freePorts() (int, error) {
	const from, to, apart, each, attempts = 20000, 30000, 100, 6, 100
	for range attempts {
		port := from + rand.IntN((to-from)/10)*10
		free := true
		for i := 0; i < brokers*each && free; i++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+i/each*apart+i%each))
			if free = err == nil; free {
				_ = l.Close()
			}
		}
		if free {
			return port, nil
		}
	}
	return 0, errors.New("no free ports")
}

// create creates the topics of a row with one partition each, and waits until all replicas are in sync and
// the first replica of each leads. Placement depends only on what was created before, so that the clusters of
// two builds lead and forward alike.
func (c *cluster) create(ctx context.Context, topics []string) error {
	for _, name := range topics {
		if _, err := c.ask(ctx, http.MethodPost, 0, "/topic/create?"+url.Values{"topic": {name}, "partitions": {"1"}}.Encode()); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		found, err := c.partitions(ctx, topics)
		if err != nil {
			return err
		}
		whole := func(p api.PartitionView) bool { return len(p.ISR) == brokers && p.Leader == p.Replicas[0] }
		if len(found) == len(topics) && !slices.ContainsFunc(found, func(p api.PartitionView) bool { return !whole(p) }) {
			c.tcp = c.tcp[:0]
			for _, name := range found[0].Replicas {
				b, err := c.Broker(string(name))
				if err != nil {
					return err
				}
				c.tcp = append(c.tcp, b.TCP)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("topics are not in sync: %w", ctx.Err())
		case <-time.After(pollEvery):
		}
	}
}

// partitions returns the first partition of each of the topics that the first broker knows, in their order.
func (c *cluster) partitions(ctx context.Context, topics []string) (found []api.PartitionView, err error) {
	body, err := c.ask(ctx, http.MethodGet, 0, "/v1/cluster")
	if err != nil {
		return nil, err
	}
	var v api.ClusterView
	if err := json.Unmarshal(body, &v); err != nil {
		return nil, err
	}
	for _, name := range topics {
		if i := slices.IndexFunc(v.Topics, func(t api.TopicView) bool { return t.Topic == name }); i >= 0 && len(v.Topics[i].Partitions) > 0 {
			found = append(found, v.Topics[i].Partitions[0])
		}
	}
	return found, nil
}

func (c *cluster) ask(ctx context.Context, method string, broker int, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.Brokers[broker].HTTP+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s %s", method, path, resp.Status, bytes.TrimSpace(body))
	}
	return body, err
}

// The counted figures of a broker.
const (
	allocations = "allocations"
	allocated   = "allocated bytes"
	journal     = "journal bytes"
	heap        = "heap"
	stacks      = "stacks"
	held        = "held bytes"
)

// figures are those that are judged for each message of a row.
var figures = [...]string{allocations, allocated, journal}

// metrics are the broker's metrics that have these figures.
var metrics = map[string]string{
	"go_memstats_mallocs_total":     allocations,
	"go_memstats_alloc_bytes_total": allocated,
	"go_memstats_heap_alloc_bytes":  heap,
	"go_memstats_stack_inuse_bytes": stacks,
	"lockstep_journal_bytes_total":  journal,
}

// counters are sums over the brokers, by figure.
type counters map[string]float64

func (c *cluster) counters(ctx context.Context) (counters, error) {
	sum := counters{}
	for i := range c.Brokers {
		body, err := c.ask(ctx, http.MethodGet, i, "/metrics")
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(body)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			figure, ok := metrics[name]
			if !ok {
				continue
			}
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return nil, fmt.Errorf("metric %s: %w", name, err)
			}
			sum[figure] += n
		}
	}
	for _, figure := range metrics {
		if sum[figure] == 0 {
			return nil, fmt.Errorf("the brokers do not report their %s", figure)
		}
	}
	return sum, nil
}

// held returns the bytes of the brokers' live objects and stacks. Pools are empty after two collections.
func (c *cluster) held(ctx context.Context) (float64, error) {
	for range 2 {
		for i := range c.Brokers {
			if _, err := c.ask(ctx, http.MethodPost, i, "/debug/freememory"); err != nil {
				return 0, err
			}
		}
	}
	now, err := c.counters(ctx)
	return now[heap] + now[stacks], err
}
