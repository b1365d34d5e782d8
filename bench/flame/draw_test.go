package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

// sampled returns a sample with the innermost function first, as in a profile.
func sampled(ns int64, names ...string) *profile.Sample {
	s := &profile.Sample{Value: []int64{1, ns}}
	for _, name := range names {
		s.Location = append(s.Location, &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: name}}}})
	}
	return s
}

func profiled() *profile.Profile {
	return &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples"}, {Type: "cpu", Unit: "nanoseconds"}},
		Sample: []*profile.Sample{
			sampled(60, "internal/runtime/syscall/linux.Syscall6", "syscall.write", module+"rpc.(*conn).write", "sync.(*WaitGroup).Go.func1"),
			sampled(30, module+"rpc.encode[go.shape.<x>]", module+"rpc.(*conn).write"),
			sampled(10, "runtime.futex", "runtime.mcall"),
		},
	}
}

func TestTreeAddsUpStacks(t *testing.T) {
	root := tree(profiled())
	var got strings.Builder
	tell(&got, root.sorted(), root)
	tell(&got, root.leaves(), root)
	want := []string{"90.0 % rpc.(*conn).write", "10.0 % runtime.mcall",
		"60.0 % syscall.write", "30.0 % rpc.encode[go.shape.<x>]", "10.0 % runtime.futex"}
	if got := strings.Join(strings.Fields(got.String()), " "); got != strings.Join(want, " ") {
		t.Errorf("%s", got)
	}
}

func TestDrawnIsXML(t *testing.T) {
	var drawn bytes.Buffer
	if err := draw(&drawn, tree(profiled()), "a < b"); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(drawn.String(), "<g>"); n != 7 {
		t.Errorf("%d boxes: %s", n, drawn.String())
	}
	for d := xml.NewDecoder(&drawn); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
