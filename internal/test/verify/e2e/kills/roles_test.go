package kills

import (
	"testing"
	"time"

	"github.com/lockstepmq/lockstep/internal/test/testkit/e2etest"
)

// limit is how long a put elsewhere may wait when a broker with these roles dies.
func limit(r e2etest.Roles) time.Duration {
	switch {
	case r.Partition:
		return time.Second
	case r.Etcd:
		return 600 * time.Millisecond
	}
	return 300 * time.Millisecond
}

// TestKillInEveryRole kills one broker after the other under load, whatever it
// is at that time, and shows the worst stall of each combination of roles (P7).
func TestKillInEveryRole(t *testing.T) {
	s := e2etest.UnderLoad(t, 1)
	var faults []e2etest.Fault
	for i := range e2etest.Rounds(6, 60) {
		victim := e2etest.Names(s.Cluster)[i%3]
		was := s.Roles(victim)
		killed := time.Now()
		s.Crash(victim)
		s.WaitProgress(1000)
		s.RequireLoad(killed)
		s.Restart(victim)
		s.Whole(e2etest.Topic)
		e2etest.Pause(e2etest.Reconnect) // till then what this broker's clients see is excused
		faults = append(faults, e2etest.Fault{What: "kill of " + was.String(), Limit: limit(was), At: killed})
	}
	s.Finish(t)
	s.RequireStalls(faults)
}
