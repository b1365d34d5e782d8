package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// module is the prefix of this module's names.
const module = "github.com/lockstepmq/lockstep/"

// frame is a function as called by its parent.
type frame struct {
	name     string
	total    int64 // including its calls, ns
	self     int64
	children map[string]*frame
}

func newFrame(name string) *frame { return &frame{name: name, children: map[string]*frame{}} }

// tree sums the stacks of a processor profile; the root has the total.
func tree(p *profile.Profile) *frame {
	root := newFrame("all")
	last := len(p.SampleType) - 1 // nanoseconds; the one before is the count
	for _, s := range p.Sample {
		root.add(stack(s), s.Value[last])
	}
	return root
}

// stack returns the names of a sample's functions, from the goroutine's first inwards, without
// the closures that only start it.
func stack(s *profile.Sample) (names []string) {
	for _, l := range slices.Backward(s.Location) {
		for _, line := range slices.Backward(l.Line) { // inlined functions come first
			names = append(names, strings.TrimPrefix(line.Function.Name, module))
		}
	}
	for len(names) > 1 && strings.Contains(names[0], ".func") {
		names = names[1:]
	}
	return names
}

func (f *frame) add(names []string, ns int64) {
	f.total += ns
	if len(names) == 0 {
		f.self += ns
		return
	}
	child := f.children[names[0]]
	if child == nil {
		child = newFrame(names[0])
		f.children[names[0]] = child
	}
	child.add(names[1:], ns)
}

func (f *frame) share(root *frame) float64 { return 100 * float64(f.total) / float64(root.total) }

// sorted returns the children, the largest first.
func (f *frame) sorted() []*frame {
	out := make([]*frame, 0, len(f.children))
	for _, c := range f.children {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b *frame) int {
		return cmp.Or(cmp.Compare(b.total, a.total), strings.Compare(a.name, b.name))
	})
	return out
}

// syscalls are the functions of all system calls.
var syscalls = []string{"Syscall", "Syscall6", "RawSyscall", "RawSyscall6"}

// leaves returns every function with its own time. A system call has the name of its caller.
func (f *frame) leaves() []*frame {
	all := newFrame("")
	f.collect(f.name, all)
	return all.sorted()
}

func (f *frame) collect(caller string, into *frame) {
	name := f.name
	if base := name[strings.LastIndexByte(name, '.')+1:]; slices.Contains(syscalls, base) {
		name = caller
	}
	if f.self > 0 {
		into.add([]string{name}, f.self)
	}
	for _, c := range f.children {
		c.collect(name, into)
	}
}
