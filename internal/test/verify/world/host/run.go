package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/lockstepmq/lockstep/internal/test/verify/world"
)

// limit ends a world that does not end: its code waits for something that never happens, or works forever.
const limit = 5 * time.Minute

// Run lives through the world of a seed, without some faults of its plan.
func Run(ctx context.Context, program string, seed uint64, without []int) (world.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c := exec.CommandContext(ctx, program, "-seed", fmt.Sprint(seed), "-without", strings.Trim(strings.ReplaceAll(fmt.Sprint(without), " ", ","), "[]"))
	c.Env = []string{"GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=6GiB", "GOTRACEBACK=all", "GODEBUG=memprofilerate=0"} // a collection depends on the threads of the runtime
	var errors bytes.Buffer
	c.Stderr = &errors
	out, err := c.Output()
	if err != nil {
		return world.Result{Seed: seed}, fmt.Errorf("seed %d: %w\n%s", seed, err, tail(plain(errors.Bytes())))
	}
	var r world.Result
	if err := json.Unmarshal(plain(out), &r); err != nil {
		return r, fmt.Errorf("seed %d: %w", seed, err)
	}
	return r, nil
}

// plain removes the headers that the simulated clock puts before each write: 4 bytes of magic, 8 of time, 4 of length.
func plain(b []byte) (out []byte) {
	const head = 16
	for len(b) >= head && bytes.HasPrefix(b, []byte("\x00\x00PB")) {
		n := min(int(binary.BigEndian.Uint32(b[12:])), len(b)-head)
		out = append(out, b[head:head+n]...)
		b = b[head+n:]
	}
	return append(out, b...)
}

func tail(b []byte) []byte { return b[:min(len(b), 6000)] }

// Shrink leaves out faults as long as a rule of the same name is broken, and returns what is left.
func Shrink(ctx context.Context, program string, r world.Result) (world.Result, []int) {
	var without []int
	for i := range r.Plan {
		try := append(slices.Clone(without), i)
		again, err := Run(ctx, program, r.Seed, try)
		if err == nil && sameRule(again, r) {
			r, without = again, try
		}
	}
	return r, without
}

func sameRule(a, b world.Result) bool {
	for _, v := range a.Violations {
		if slices.ContainsFunc(b.Violations, func(w world.Violation) bool { return v.Rule == w.Rule }) {
			return true
		}
	}
	return false
}
