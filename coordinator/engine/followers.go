package engine

import (
	"time"

	"github.com/lockstepmq/lockstep/coordinator/replica"
)

// leading is a Machine that has followers; *replica.Machine is one.
type leading interface {
	Followers(nowMS int64, dst []replica.FollowerView) []replica.FollowerView
}

// Followers refreshes the followers of partitions led here, as their machines have them now. It
// waits for a pass of each core loop concerned, and not longer than wait: a loop may hang, and then
// the followers of the last time stay. Partition.Followers has them.
func (e *Engine) Followers(of []*Partition, wait time.Duration) {
	loops := map[*loop]bool{}
	for _, p := range of {
		loops[p.loop] = p.loop.events.enqueue(event{kind: eventFollowers, id: p.id})
	}
	limit := time.NewTimer(wait)
	defer limit.Stop()
	for l, open := range loops {
		ack := make(chan struct{})
		if !open || !l.events.enqueue(event{kind: eventBarrier, ack: ack}) {
			continue
		}
		select {
		case <-ack:
		case <-limit.C:
			return
		}
	}
}

// Followers are the other replicas at the last Engine.Followers with this partition.
func (p *Partition) Followers() []replica.FollowerView {
	if list := p.followers.Load(); list != nil {
		return *list
	}
	return nil
}
