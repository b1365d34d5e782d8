package chaos

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
)

// watcher adds up the counters of brokers over their lives: each life starts
// again from zero, so what was seen last of every life counts.
type watcher struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     sync.Mutex
	past   api.CounterTotals            // of lives that have ended
	last   map[string]api.CounterTotals // broker → of its present life
	seen   map[string]sight
}

// sight is the last view of a broker, and when it was asked for.
type sight struct {
	at   time.Time
	view api.ClusterView
}

// watchCounters looks at every broker until stopped.
func watchCounters(c *cluster) *watcher {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watcher{cancel: cancel, last: map[string]api.CounterTotals{}, seen: map[string]sight{}}
	for _, b := range c.brokers {
		w.wg.Go(func() { w.watch(ctx, b.name, b.http()) }) // ends at stop
	}
	return w
}

func (w *watcher) watch(ctx context.Context, name, address string) {
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		w.look(client, name, address)
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (w *watcher) look(client *http.Client, name, address string) {
	asked := time.Now()
	resp, err := client.Get("http://" + address + "/v1/cluster")
	if err != nil {
		return
	}
	defer resp.Body.Close()
	var v api.ClusterView
	if json.NewDecoder(resp.Body).Decode(&v) != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if before := w.last[name]; restarted(before, v.Counters) {
		w.past = plus(w.past, before)
	}
	w.last[name] = v.Counters
	w.seen[name] = sight{asked, v}
}

// views are those that were asked for since a moment.
func (w *watcher) views(since time.Time) map[string]api.ClusterView {
	w.mu.Lock()
	defer w.mu.Unlock()
	fresh := map[string]api.ClusterView{}
	for name, s := range w.seen {
		if s.at.After(since) {
			fresh[name] = s.view
		}
	}
	return fresh
}

// restarted reports whether a counter went back.
func restarted(before, now api.CounterTotals) bool {
	return now.Elections < before.Elections || now.Rollbacks < before.Rollbacks || now.InDoubt < before.InDoubt ||
		now.Truncations < before.Truncations || now.Shrinks < before.Shrinks || now.Grows < before.Grows
}

func (w *watcher) stop() {
	w.cancel()
	w.wg.Wait()
}

// total sums all lives.
func (w *watcher) total() (sum api.CounterTotals) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sum = w.past
	for _, c := range w.last {
		sum = plus(sum, c)
	}
	return sum
}

func plus(a, b api.CounterTotals) api.CounterTotals {
	return api.CounterTotals{
		Elections: a.Elections + b.Elections, Rollbacks: a.Rollbacks + b.Rollbacks, RolledBack: a.RolledBack + b.RolledBack,
		InDoubt: a.InDoubt + b.InDoubt, Truncations: a.Truncations + b.Truncations, Shrinks: a.Shrinks + b.Shrinks,
		Grows: a.Grows + b.Grows, Swaps: a.Swaps + b.Swaps,
	}
}
