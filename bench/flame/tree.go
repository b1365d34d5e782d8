package main

import (
	"cmp"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// module is what all names of our own begin with.
const module = "github.com/lockstepmq/lockstep/"

// frame is a function as called by its parent.
type frame struct {
	name     string
	total    int64 // with what it calls, ns
	self     int64
	children map[string]*frame
}

func newFrame(name string) *frame { return &frame{name: name, children: map[string]*frame{}} }

// tree adds up the stacks of a processor profile; its root is all.
func tree(p *profile.Profile) *frame {
	root := newFrame("all")
	last := len(p.SampleType) - 1 // nanoseconds; before it the count
	for _, s := range p.Sample {
		root.add(stack(s), s.Value[last])
	}
	return root
}

// stack names a sample's functions, from the goroutine's first inwards; without
// the closures that it was started with, which say nothing.
func stack(s *profile.Sample) (names []string) {
	for _, l := range slices.Backward(s.Location) {
		for _, line := range slices.Backward(l.Line) { // inlined ones come first
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

// sorted gives the children, the greatest first.
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

// doors are the functions through which all system calls go.
var doors = []string{"Syscall", "Syscall6", "RawSyscall", "RawSyscall6"}

// leaves gives, for every function that uses time itself, how much; a system
// call goes by the name of who makes it.
func (f *frame) leaves() []*frame {
	all := newFrame("")
	f.collect(f.name, all)
	return all.sorted()
}

func (f *frame) collect(caller string, into *frame) {
	name := f.name
	if base := name[strings.LastIndexByte(name, '.')+1:]; slices.Contains(doors, base) {
		name = caller
	}
	if f.self > 0 {
		into.add([]string{name}, f.self)
	}
	for _, c := range f.children {
		c.collect(name, into)
	}
}
