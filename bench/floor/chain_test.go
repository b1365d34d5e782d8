package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/bench/child"
	"github.com/lockstepmq/lockstep/internal/bench"
)

// TestMain is also a member: the chain starts the executable that it runs in.
func TestMain(m *testing.M) {
	child.Serve(memberCommand, member)
	os.Exit(m.Run())
}

// TestThreeCopies puts through every member, and finds each put in three files.
func TestThreeCopies(t *testing.T) {
	dir := t.TempDir()
	c, err := start(dir, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	w := bench.Workload{Kind: bench.Mixed, Connections: 2 * members, Consumers: members, Outstanding: 2, Size: 10, Messages: 600}
	run, err := bench.Measure(t.Context(), w, &bench.Config{
		Addresses: c.addresses, Topic: "t", Bounds: bench.Bounds{Scale: 1, Timeout: 20 * time.Second}})
	if err != nil || run.Messages != w.Messages {
		t.Fatalf("%+v, %v", run, err)
	}
	want := bytes.Repeat([]byte("\x00\x00\x00\x0axxxxxxxxxx"), w.Messages)
	for i := range members {
		written, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(written, append(want, 0, 0, 0, 0)) {
			t.Errorf("member %d has another log", i)
		}
	}
}
