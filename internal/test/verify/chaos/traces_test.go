package chaos

import (
	"slices"
	"testing"
	"time"
)

// Traces of internal/test/verify/model, each of which ends in a loss with a mutant
// (docs/robustness.md), with real brokers.

// TestGrowthWithLostAnswer (maximal-isr): the leader does not get the answer to its
// proposal of a larger in-sync set, which has landed. The new member must hold every put that the
// leader acknowledges, because only the new member survives.
func TestGrowthWithLostAnswer(t *testing.T) {
	s, leader, second, back := newStage(t)
	s.hold(back, leader)
	z := s.put(leader, "without the third")
	s.step("the in-sync set shrinks", func() bool { return !s.member(back) })
	s.acknowledged(z)
	deaf := oneWay([]int{s.etcd.number()}, []int{leader.number()}, []lane{etcdLane}, drop)
	s.net.add(deaf...)
	s.hold(leader, back) // it has caught up, and learns of nothing more
	s.release(back, leader)
	s.step("the in-sync set grows", func() bool { return s.member(back) })
	x := s.put(leader, "with an in-sync set unknown")
	within(time.Second, x.isAnswered) // it must not be; whether it is, is judged in the end
	s.kill(leader, second)
	s.net.mend(deaf...)
	s.revoke(leader, second)
	s.step("the new member leads", func() bool { return s.leads(back) })
	s.finish()
}

// TestTakenOverBeforeMarker (takeover-at-once): a leader dies that alone knows what is
// committed, and its successor's marker stays without an answer for longer than a
// put may take. A leader that takes puts before the marker is committed, and rolls back
// while members have not answered in its epoch, rolls back puts then that it does not
// know to be committed.
func TestTakenOverBeforeMarker(t *testing.T) {
	s, leader, second, third := newStage(t)
	s.hold(third, leader)
	x := s.put(leader, "known to the leader alone")
	s.said("it holds the put", second, leader, holds(2))
	s.said("it holds the put", third, leader, holds(2))
	s.hold(leader, second, third)
	s.release(third, leader)
	s.acknowledged(x)
	s.hold(second, third)
	s.hold(third, second)
	s.kill(leader)
	s.revoke(leader)
	s.step("another one leads", func() bool { return !s.leads(leader) })
	successor := second
	if s.leads(third) {
		successor = third
	}
	s.put(successor, "before the marker is committed")
	const writeLimit = 3 * time.Second // after which uncommitted puts are rolled back
	epoch := s.state().Epoch
	within(writeLimit+time.Second, func() bool { return s.state().Epoch > epoch }) // it must not
	s.finish()
}

// TestStaleMarker (epoch-check): b is deposed before its marker arrives anywhere,
// and c, which has a's put, commits that in the marker's place. Then the marker
// comes to a, and a is left alone. The model stops where a lacks c's marker; for a
// client to miss a put it takes these three leaders.
func TestStaleMarker(t *testing.T) {
	s, a, b, c := newStage(t)
	s.hold(a, b, c)
	s.hold(b, a, c)
	mute := oneWay([]int{c.number()}, []int{s.etcd.number()}, []lane{etcdLane}, drop)
	s.net.add(mute...) // so that it does not stand against b
	s.net.add(s.withoutEtcd(a)...)
	x := s.put(c, "of the first epoch")
	s.said("the put", a, c, func(m message) bool { return m.payload > 0 && m.Prev.Sequence == 1 })
	s.revoke(a)
	s.step(b.name+" leads", func() bool { return s.leads(b) })
	stale := s.state().Epoch
	s.said("its marker", b, a, func(m message) bool { return m.payload > 0 && m.Epoch == stale })

	s.net.add(s.withoutEtcd(b)...)
	s.net.mend(mute...)
	s.release(a, c)
	s.said("it holds the put", c, a, holds(2))
	s.revoke(b)
	s.step(c.name+" leads", func() bool { return s.leads(c) })
	s.said("it holds put, marker and channels", a, c, func(m message) bool {
		return holds(2)(m) && m.Epoch > stale && m.ConfirmN > 0
	})
	s.hold(c, a) // a does not receive the commit of this
	s.release(a, b)
	s.release(b, c)
	s.acknowledged(x)

	before := len(s.sent(a, b))
	s.release(b, a)
	s.step(a.name+" answers the stale marker", func() bool { return len(s.sent(a, b)) > before })
	s.kill(b, c)
	s.net.mend(slices.Concat(s.withoutEtcd(a), s.withoutEtcd(b))...)
	s.revoke(c)
	s.step(a.name+" leads", func() bool { return s.leads(a) })
	s.finish()
}
