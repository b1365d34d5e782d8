package sim

import "github.com/lockstepmq/lockstep/commitlog"

// newIndex makes the commit log of an image, as a store rebuilds it: the real
// one, kept in memory.
func newIndex(m *image) *commitlog.Log {
	l := new(commitlog.Log)
	l.Restart(m.start)
	l.Append(m.records()...)
	return l
}
