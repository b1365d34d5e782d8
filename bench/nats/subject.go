package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/lockstepmq/lockstep/internal/test/bench"
)

// The meaning of an acknowledgement: the message is on the disks of the replicas, or in their
// memory.
const (
	synced    = "synced"
	pageCache = "page cache"
)

// subject measures one cluster.
type subject struct {
	*cluster
	bounds bench.Bounds
}

// repeat is one repeat of a workload with clients of NATS.
type repeat struct {
	*bench.Repeat
	*cluster
	w      bench.Workload
	bounds bench.Bounds
	stream string
}

// Label returns the name in the table.
func (s *subject) Label() string {
	if s.syncAlways {
		return "NATS R3, sync always"
	}
	return "NATS R3"
}

// Durability returns the meaning of an acknowledgement.
func (s *subject) Durability(context.Context) string {
	if s.syncAlways {
		return synced
	}
	return pageCache
}

// Repeat runs a workload once with its own stream.
func (s *subject) Repeat(ctx context.Context, w bench.Workload, row *bench.Row, progress func(percent int)) (err error) {
	name := fmt.Sprintf("bench_%s_%06d", strings.ReplaceAll(w.Name, "=", "_"), rand.IntN(1e6))
	disk := bench.DiskUsage(s.dirs())
	if _, err := s.create(ctx, name); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.js.DeleteStream(context.WithoutCancel(ctx), name)) }()
	if err := s.seeISR(ctx, name, row); err != nil {
		return err
	}
	bench.ResetPeakMemory(s.PIDs())
	r := &repeat{Repeat: bench.NewRepeat(s.bounds, s.PIDs(), progress), cluster: s.cluster, w: w, bounds: s.bounds, stream: name}
	run, err := r.measure(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", w.Name, err)
	}
	row.Runs = append(row.Runs, run)
	row.Disk += bench.DiskUsage(s.dirs()) - disk
	row.Memory = max(row.Memory, bench.PeakMemory(s.PIDs()))
	return s.seeISR(ctx, name, row)
}

func (s *subject) seeISR(ctx context.Context, stream string, row *bench.Row) error {
	n, err := s.inSync(ctx, stream)
	if err == nil {
		row.SawISR(n, servers)
	}
	return err
}

func (r *repeat) measure(ctx context.Context) (bench.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*r.bounds.Timeout) // includes the filling of a backlog
	defer cancel()
	n := r.bounds.Messages(r.w)
	switch r.w.Kind {
	case bench.Publish:
		puts := n / r.w.Connections
		return r.Run(ctx, puts*r.w.Connections, r.publishers(puts, r.Add))
	case bench.Mixed:
		puts := n / r.w.Connections
		consumers, err := r.consumers(ctx, "bench", r.w.Consumers)
		if err != nil {
			return bench.Run{}, err
		}
		return r.Run(ctx, puts*r.w.Connections, append(r.publishers(puts, func(int) {}), consumers...))
	case bench.Consume:
		return r.backlog(ctx, n)
	}
	return bench.Run{}, errors.New("NATS has no such workload")
}
