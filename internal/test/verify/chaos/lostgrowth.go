package chaos

import (
	"slices"
	"time"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

// lostGrowth leads to a state in which one rule alone prevents a loss. Random faults
// hardly ever reach it. A follower comes back while etcd's answers do not reach the
// leader, so the leader does not know that it grew the in-sync set. Then the follower
// stops, all others die, and it wakes up to lead alone.
func (r *round) lostGrowth() func() {
	leader := r.leader()
	rest := r.except(leader)
	back, third := rest[0], rest[1]
	r.kill(back)
	within(5*time.Second, func() bool { return !r.inSync(back, third) })
	deaf := oneWay(r.hosts(r.except(leader)...), r.numbers(leader), []lane{etcdLane}, drop)
	r.net.add(deaf...)
	r.start(back)
	within(3*time.Second, func() bool { return r.inSync(back, third) })
	r.pause(back)
	pause(500 * time.Millisecond) // what is acknowledged now the follower does not have
	dead := r.except(back)
	r.kill(dead...)
	r.net.mend(deaf...)
	r.resume(back)
	return func() {
		for _, b := range dead {
			r.start(b)
		}
	}
}

// inSync reports whether all in-sync sets have a broker, as another one sees it.
func (r *round) inSync(b, seenBy *broker) bool {
	v, ok := r.viewOf(seenBy)
	return ok && !slices.ContainsFunc(v.Partitions, func(p api.PartitionView) bool {
		return !slices.Contains(p.ISR, ident.Node(b.name))
	})
}
