package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/bench"
	"github.com/lockstepmq/lockstep/internal/devcluster"
	"github.com/lockstepmq/lockstep/internal/edge"
)

// ours measures a fresh Lockstep cluster of three in turn with the others.
type ours struct {
	cluster    *devcluster.Cluster
	durability string
	bounds     bench.Bounds
	brokers    brokers
}

// brokers is what the figures of our cluster are taken from.
type brokers struct {
	tcp, dirs []string
	pids      []int
	http      string // of one of them
}

// startOurs starts brokers of an nsqd and waits until they serve.
func startOurs(ctx context.Context, nsqd, durability, dir string, basePort int) (*ours, error) {
	nsqd, err := filepath.Abs(nsqd)
	if err != nil {
		return nil, err
	}
	c, err := devcluster.New(devcluster.Config{
		Nodes: servers, DataDir: dir, BasePort: basePort, NSQD: nsqd, Args: []string{"--durability=" + durability}, Tied: true,
	})
	if err != nil {
		return nil, err
	}
	o := &ours{cluster: c, durability: durability}
	ctx, cancel := context.WithTimeout(ctx, ready)
	defer cancel()
	if err = c.StartAll(); err == nil {
		err = c.Ready(ctx)
	}
	if err != nil {
		o.stop()
		return nil, err
	}
	for _, b := range c.Brokers {
		o.brokers.tcp, o.brokers.dirs = append(o.brokers.tcp, b.TCP), append(o.brokers.dirs, b.DataDir)
		o.brokers.pids, o.brokers.http = append(o.brokers.pids, b.PID), b.HTTP
	}
	return o, nil
}

func (o *ours) stop() { _ = o.cluster.StopAll(15 * time.Second) }

// Label is our name in the table.
func (o *ours) Label() string { return "Lockstep, " + o.durability }

// Durability says what an acknowledgement means, in the words of the others.
func (o *ours) Durability(context.Context) string {
	if o.durability == "sync" {
		return synced
	}
	return pageCache
}

// Repeat runs a workload once with a topic of its own.
func (o *ours) Repeat(ctx context.Context, w bench.Workload, row *bench.Row, progress func(percent int)) error {
	topic := fmt.Sprintf("bench_%s_%06d", strings.ReplaceAll(w.Name, "=", "_"), rand.IntN(1e6))
	if err := o.post(ctx, "/topic/create?topic="+topic); err != nil {
		return err
	}
	disk := bench.DiskUsage(o.brokers.dirs)
	if err := o.seeISR(ctx, topic, row); err != nil {
		return err
	}
	bench.ResetPeakMemory(o.brokers.pids)
	run, err := bench.Measure(ctx, w, &bench.Config{
		Addresses: o.brokers.tcp, Topic: topic, Bounds: o.bounds, PIDs: o.brokers.pids, Progress: progress})
	if err != nil {
		return err
	}
	row.Runs = append(row.Runs, run)
	row.Disk += bench.DiskUsage(o.brokers.dirs) - disk
	row.Memory = max(row.Memory, bench.PeakMemory(o.brokers.pids))
	if err := o.seeISR(ctx, topic, row); err != nil {
		return err
	}
	return o.post(ctx, "/topic/delete?topic="+topic)
}

func (o *ours) post(ctx context.Context, path string) error {
	return o.call(ctx, http.MethodPost, path, nil)
}

func (o *ours) seeISR(ctx context.Context, topic string, row *bench.Row) error {
	var v edge.ClusterView
	err := o.call(ctx, http.MethodGet, "/v1/cluster", &v)
	if err == nil {
		row.SawISR(v.InSync(topic))
	}
	return err
}

// call asks one of the brokers; into may be nil.
func (o *ours) call(ctx context.Context, method, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+o.brokers.http+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, path, resp.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}
