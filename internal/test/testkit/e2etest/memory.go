package e2etest

import (
	"time"

	"github.com/lockstepmq/lockstep/internal/test/bench"
)

// Resident is the memory of one broker.
type Resident struct{ Before, Most int64 }

// WatchMemory samples the brokers' resident memory until the function that it
// returns is called.
func (c *Cluster) WatchMemory() (stop func() map[string]Resident) {
	all := map[string]Resident{}
	for _, b := range c.Brokers {
		now := bench.Memory([]int{b.PID})
		all[b.Name] = Resident{now, now}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() { // ends with stop
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(50 * time.Millisecond):
			}
			for _, b := range c.Brokers {
				m := all[b.Name]
				all[b.Name] = Resident{m.Before, max(m.Most, bench.Memory([]int{b.PID}))}
			}
		}
	}()
	return func() map[string]Resident {
		close(end)
		<-ended
		return all
	}
}
