package chaos

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/test/testkit/loopdisk"
)

// TestDisksFailUnderTwo (sync-before-ack): the disks of both
// followers fail and lose what was not synced, with a put on its way to them, and
// the leader dies. When their disks are back, they must have every acknowledged put.
func TestDisksFailUnderTwo(t *testing.T) {
	s := preparedStage(t)
	disks := s.ownDisks()
	leader, second, third := s.open()
	s.acknowledged(s.put(leader, "just before"))
	s.hold(leader, second, third)
	x := s.put(leader, "that two disks do not take")
	withPut := func(m message) bool { return m.payload > 0 && m.Prev.Sequence == 2 }
	s.said("the put", leader, second, withPut)
	s.said("the put", leader, third, withPut)
	require.NoError(t, disks[second].Break())
	require.NoError(t, disks[third].Break())
	s.release(leader, second, third)
	s.step("both notice", func() bool { return second.logged("store failed") && third.logged("store failed") })
	within(time.Second, x.isAnswered) // it must not be
	s.kill(leader, second, third)
	for _, b := range []*broker{second, third} {
		require.NoError(t, disks[b].Repair())
		s.start(b)
	}
	s.revoke(leader)
	s.step("one of the two leads", func() bool { return !s.leads(leader) })
	s.finish()
}

// ownDisks gives each broker's data a disk that can fail; the test is skipped
// where that cannot be.
func (c *cluster) ownDisks() map[*broker]*loopdisk.Disk {
	c.t.Helper()
	disks := map[*broker]*loopdisk.Disk{}
	for _, b := range c.brokers {
		d, err := loopdisk.Mount(filepath.Join(c.dir, b.name+".disk"), b.dir, 1<<30)
		if err != nil {
			env.Missing(c.t, "disks of its own", err)
		}
		c.t.Cleanup(func() {
			c.kill(b)
			require.NoError(c.t, d.Close())
		})
		disks[b] = d
	}
	return disks
}
