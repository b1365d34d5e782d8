package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sweep is one workload in several sizes: the changed parameter, and each point.
type Sweep struct {
	Name   string
	Points []Workload // X is the value of the changed parameter
}

// sweepTime bounds a sweep without the creation of its topics: all six take twelve minutes.
const sweepTime = 110 * time.Second

// maxPoints is the largest number of values of one sweep.
const maxPoints = 32

// axis is a parameter that a sweep can change.
type axis struct {
	name   string
	values []int // the default values
	at     func(x int) Workload
}

func axes() []axis {
	return []axis{
		{"connections", doubling(1, 256), func(x int) Workload {
			return Workload{Connections: x, Outstanding: 1, Size: 100, Messages: 1_000_000}
		}},
		{"partitions", doubling(1, 64), func(x int) Workload {
			return Workload{Connections: 8, Outstanding: 100, Size: 100, Messages: 2_000_000, Partitions: x}
		}},
		{"topics", doubling(1, 256), func(x int) Workload {
			return Workload{Connections: 64, Outstanding: 1, Size: 100, Messages: 1_000_000, Topics: x}
		}},
		{"size", []int{100, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10}, func(x int) Workload {
			return Workload{Connections: 8, Outstanding: 4, Size: x, Messages: min(1_000_000, 1<<30/x)}
		}},
		{"backlog", []int{10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000}, func(x int) Workload {
			return Workload{Kind: Consume, Connections: 4, Size: 100, Messages: x}
		}},
		{"channels", doubling(1, 16), func(x int) Workload {
			return Workload{Kind: Consume, Connections: 1, Channels: x, Size: 1 << 10, Messages: 50_000}
		}},
	}
}

func doubling(from, to int) (out []int) {
	for x := from; x <= to; x *= 2 {
		out = append(out, x)
	}
	return out
}

// SweepNames lists the names that ParseSweep accepts.
func SweepNames() (names []string) {
	for _, a := range axes() {
		names = append(names, a.name)
	}
	return names
}

// ParseSweep reads NAME, or NAME=1,2,4 with other values than the default.
func ParseSweep(text string) (Sweep, error) {
	name, list, given := strings.Cut(text, "=")
	i := slices.IndexFunc(axes(), func(a axis) bool { return a.name == name })
	if i < 0 {
		return Sweep{}, fmt.Errorf("bench: no sweep %q: choose among %s", name, strings.Join(SweepNames(), ", "))
	}
	a := axes()[i]
	if given {
		a.values = nil
		for _, field := range strings.Split(list, ",") {
			x, err := strconv.Atoi(strings.TrimSpace(field))
			if err != nil || x < 1 {
				return Sweep{}, fmt.Errorf("bench: sweep %s: %q is no positive number", name, field)
			}
			a.values = append(a.values, x)
		}
	}
	if len(a.values) > maxPoints {
		return Sweep{}, fmt.Errorf("bench: sweep %s: %d values, at most %d", name, len(a.values), maxPoints)
	}
	s := Sweep{Name: name}
	for _, x := range a.values {
		w := a.at(x)
		w.Name, w.X = fmt.Sprintf("%s=%d", name, x), float64(x)
		s.Points = append(s.Points, w)
	}
	return s, nil
}

// Limit returns the time of one repeat with which that many repeats of all points keep the
// sweep below two minutes. Where a backlog is filled first, the filling may take as long as
// the consuming.
func (s Sweep) Limit(repeats int) time.Duration {
	if s.Points[0].Kind == Consume {
		repeats *= 2
	}
	return sweepTime / time.Duration(repeats*len(s.Points))
}
