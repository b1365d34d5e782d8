package main

import (
	"bytes"
	"context"
	"os"
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/bench/child"
	"github.com/lockstepmq/lockstep/internal/test/bench"
)

// TestMain is also a server: the cluster starts its own executable.
func TestMain(m *testing.M) {
	child.Serve(serverCommand, serve)
	os.Exit(m.Run())
}

// TestEveryRow measures each kind of workload with few messages, on servers that sync.
func TestEveryRow(t *testing.T) {
	c, err := start(t.Context(), clusterConfig{dir: t.TempDir(), basePort: 16350, syncAlways: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.stop)
	turns := bench.Turns{Repeats: 1, Progress: &bytes.Buffer{}, Subjects: []bench.Subject{
		&subject{cluster: c, bounds: bench.Bounds{Scale: 0.001, Limit: 5 * time.Second, Timeout: time.Minute}},
	}}
	cpu := 0.0 // a row may take less than a tick of the clock
	for _, w := range bench.Workloads() {
		if !measurable(w) {
			continue
		}
		rows, err := turns.Measure(context.Background(), w)
		if err != nil {
			t.Fatal(err)
		}
		cpu += rows[0].CPU
		if r := rows[0]; r.Runs[0].Messages == 0 || r.Memory == 0 || r.Replicas != servers {
			t.Errorf("%s: %+v", w.Name, r)
		}
	}
	if cpu == 0 {
		t.Error("the servers took no processor time")
	}
}
