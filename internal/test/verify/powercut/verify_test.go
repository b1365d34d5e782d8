package powercut

import (
	"fmt"
	"slices"

	"github.com/lockstepmq/lockstep/internal/ident"
)

const (
	// patience is how many ticks a cluster may take to be whole again.
	patience = 300
	// repeats is how many answered puts are tried again per partition.
	repeats = 4
	// freshID is above the numbers of all puts of a history.
	freshID = 1 << 40
)

func incarnation(k *known) ident.Incarnation { return ident.Incarnation(k.revision) }

// verify starts three brokers on what a cut left and checks everything; the
// disks are used up by it. With again, the power fails a second time while they
// recover.
func (c *cut) verify(seed uint64, again bool) error {
	w := newWorld(seed, c.known.fork())
	defer w.close()
	for n, mem := range c.disks {
		w.supply.plug(n, mem, nil)
	}
	w.supply.arm(again)
	err := w.power()
	if err == nil {
		err = w.converge()
	}
	if err == nil && again {
		err = w.verifyAgain(seed)
	}
	if err != nil {
		return fmt.Errorf("%w\n\tafter the cut at %s", err, c.at)
	}
	return nil
}

// verifyAgain looks at some of the cuts during a recovery.
func (w *world) verifyAgain(seed uint64) error {
	w.supply.arm(false)
	cuts := w.supply.take()
	w.rng.Shuffle(len(cuts), func(i, j int) { cuts[i], cuts[j] = cuts[j], cuts[i] })
	for _, c := range cuts[:min(3, len(cuts))] {
		if err := c.verify(seed+1, false); err != nil {
			return err
		}
	}
	return nil
}

// converge: leaders are elected, all replicas join, new puts commit, and what
// was answered before is there, once.
func (w *world) converge() error {
	if err := w.becomeWhole(); err != nil {
		return err
	}
	for part := range partitions {
		w.repeat(part)
		w.propose(w.leader(part), attempt{part: part, id: freshID + uint64(part) + w.client.puts*partitions})
	}
	w.client.puts++
	if err := w.becomeWhole(); err != nil {
		return err
	}
	if n := len(w.client.waiting); n > 0 {
		return fmt.Errorf("stuck: %d puts are not answered", n)
	}
	k := w.known()
	for part := range partitions {
		if err := w.equal(&k, part); err != nil {
			return fmt.Errorf("%w (partition %d)", err, part)
		}
	}
	return nil
}

func (w *world) becomeWhole() error {
	for range patience {
		if err := w.settle(); err != nil || w.whole() {
			return err
		}
		w.tick()
	}
	return fmt.Errorf("stuck: after %d ms: %s", patience*stepMS, w.describe())
}

// whole: each partition has a leader, all replicas in sync, nothing to do.
func (w *world) whole() bool {
	k := w.known()
	for part := range partitions {
		l := w.leader(part)
		if l == nil || !l.m.Idle() || len(k.parts[part].ISR) != nodes {
			return false
		}
		end := l.m.View().End
		for _, p := range w.procs {
			if v := p.hosts[part].m.View(); v.End != end || v.Committed != end {
				return false
			}
		}
	}
	return true
}

func (w *world) describe() (text string) {
	k := w.known()
	for part := range partitions {
		text += fmt.Sprintf("\n\tpartition %d: %+v", part, k.parts[part])
		for _, p := range w.procs {
			v := p.hosts[part].m.View()
			text += fmt.Sprintf("\n\t\tn%d is %s in %d, %d ≤ %d, store %v", p.n+1, v.Role, v.Epoch, v.Committed.Offset, v.End.Offset, p.store.Err())
		}
	}
	return text
}

// repeat tries answered puts again: they are recognised, at their places.
func (w *world) repeat(part int) {
	h := w.leader(part)
	var acked []put
	for _, a := range w.known().acked {
		if a.part == part && a.first >= h.p.Start().Sequence {
			acked = append(acked, a)
		}
	}
	for range min(repeats, len(acked)) {
		w.propose(h, attempt{part: part, id: acked[w.rng.IntN(len(acked))].id})
	}
}

// equal: the replicas hold the same, and it agrees with the answers to the clients.
func (w *world) equal(k *known, part int) error {
	var chain []uint32
	for _, p := range w.procs {
		h := p.hosts[part]
		c, err := k.read(part, h.p, h.m.View().End)
		if err == nil {
			err = k.holds(part, c)
		}
		if err == nil {
			err = k.nowhere(part, c)
		}
		if err == nil {
			err = k.holdsChanges(part, &h.reg)
		}
		if err != nil {
			return err
		}
		n := min(len(chain), len(c.chain))
		if !slices.Equal(chain[len(chain)-n:], c.chain[len(c.chain)-n:]) {
			return fmt.Errorf("differ: the log of n%d", p.n+1)
		}
		chain = c.chain
	}
	return nil
}
