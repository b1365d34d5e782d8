package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/lockstepmq/lockstep/bench/lockstep"
	"github.com/lockstepmq/lockstep/internal/test/bench"
)

// ours measures a new Lockstep cluster of three in turn with the others.
type ours struct {
	*lockstep.Cluster
	durability string
	bounds     bench.Bounds
	tcp, dirs  []string
	pids       []int
}

// startOurs starts brokers of an nsqd and waits until they serve.
func startOurs(ctx context.Context, nsqd, durability, dir string, basePort int) (*ours, error) {
	c, err := lockstep.Start(ctx, nsqd, dir, basePort, "--durability="+durability)
	if err != nil {
		return nil, err
	}
	o := &ours{Cluster: c, durability: durability}
	for _, b := range c.Brokers {
		o.tcp, o.dirs, o.pids = append(o.tcp, b.TCP), append(o.dirs, b.DataDir), append(o.pids, b.PID)
	}
	return o, nil
}

// Label returns the name in the table.
func (o *ours) Label() string { return "Lockstep, " + o.durability }

// Durability returns the meaning of an acknowledgement, in the words of the other subjects.
func (o *ours) Durability(context.Context) string {
	if o.durability == "sync" {
		return synced
	}
	return pageCache
}

// Repeat runs a workload once with its own topic.
func (o *ours) Repeat(ctx context.Context, w bench.Workload, row *bench.Row, progress func(percent int)) error {
	topic := fmt.Sprintf("bench_%s_%06d", strings.ReplaceAll(w.Name, "=", "_"), rand.IntN(1e6))
	if err := o.Post(ctx, "/topic/create?topic="+topic); err != nil {
		return err
	}
	disk := bench.DiskUsage(o.dirs)
	if err := o.seeISR(ctx, topic, row); err != nil {
		return err
	}
	bench.ResetPeakMemory(o.pids)
	run, err := bench.Measure(ctx, w, &bench.Config{
		Addresses: o.tcp, Topic: topic, Bounds: o.bounds, PIDs: o.pids, Progress: progress})
	if err != nil {
		return err
	}
	row.Runs = append(row.Runs, run)
	row.Disk += bench.DiskUsage(o.dirs) - disk
	row.Memory = max(row.Memory, bench.PeakMemory(o.pids))
	if err := o.seeISR(ctx, topic, row); err != nil {
		return err
	}
	return o.Post(ctx, "/topic/delete?topic="+topic)
}

func (o *ours) seeISR(ctx context.Context, topic string, row *bench.Row) error {
	v, err := o.View(ctx)
	if err == nil {
		row.SawISR(v.InSync(topic))
	}
	return err
}
