package powercut

import "github.com/lockstepmq/lockstep/coordinator/replica"

// history drives a number of random steps.
func (w *world) history(steps int) error {
	for range steps {
		w.disturb()
		w.operate()
		for range w.rng.IntN(16) {
			if !w.act() {
				break
			}
		}
		switch w.rng.IntN(6) {
		case 0, 1:
			if err := w.settle(); err != nil {
				return err
			}
		case 2:
			for range 1 + w.rng.IntN(8) {
				w.tick()
			}
		}
		if w.first != nil {
			return w.first
		}
	}
	return w.settle()
}

// operate is what clients and operators do.
func (w *world) operate() {
	switch k := w.rng.IntN(24); {
	case k < 14:
		for range 1 + w.rng.IntN(4) {
			w.put()
		}
	case k < 17:
		w.change()
	case k < 19:
		w.tryAgain()
	case k == 19:
		w.checkpoint()
	case k < 22:
		if p := w.procs[w.rng.IntN(nodes)]; p != nil && w.running(p.n) {
			p.hosts[w.rng.IntN(partitions)].retain()
		}
	case k == 22:
		if h := w.leader(w.rng.IntN(partitions)); h != nil && w.rng.IntN(3) == 0 {
			h.step(replica.TransferLeadership{To: nodeName(w.rng.IntN(nodes))})
		}
	default:
		w.tick()
	}
}

func (w *world) checkpoint() {
	p := w.procs[w.rng.IntN(nodes)]
	if p == nil || !w.running(p.n) {
		return
	}
	if err := p.store.Checkpoint(); err != nil && p.store.Err() == nil {
		w.fail("checkpoint: %w", err)
	}
}

// disturb is what goes wrong.
func (w *world) disturb() {
	n := w.rng.IntN(nodes)
	switch p := w.procs[n]; {
	case p == nil:
		if w.rng.IntN(6) == 0 {
			w.mend(w.launch(n))
		}
	case p.store.Err() != nil:
		w.kill(n, false)
	case w.apart[n] || w.deaf[n]:
		if w.rng.IntN(8) == 0 {
			w.heal(n)
		}
	default:
		w.hurt(n)
	}
}

func (w *world) hurt(n int) {
	switch w.rng.IntN(150) {
	case 0, 1:
		w.kill(n, false)
	case 2, 3:
		w.kill(n, true)
	case 4, 5, 6:
		w.isolate(n)
	case 7:
		w.note("n%d: the next sync fails", n+1)
		w.procs[n].disk.failSync()
	case 8:
		w.blackout()
	}
}

// blackout takes the power from all, and the history continues from what is left.
func (w *world) blackout() {
	for n := range nodes {
		if w.procs[n] != nil {
			w.kill(n, true)
		}
	}
	w.mend(w.power())
}

func (w *world) mend(err error) {
	if err != nil {
		w.fail("%w", err)
	}
}

// isolate cuts a broker off: from its peers, from the metadata, or both; its
// registration may run out.
func (w *world) isolate(n int) {
	k := w.rng.IntN(3)
	w.apart[n], w.deaf[n] = k != 0, k != 1
	w.note("n%d is cut off from brokers %t, from metadata %t", n+1, w.apart[n], w.deaf[n])
	w.reconnect(n)
	if w.deaf[n] && w.rng.IntN(2) == 0 {
		w.live[n] = 0
		for m := range nodes {
			if m != n && w.running(m) {
				w.tell(m, replica.Live{Node: nodeName(n)})
			}
		}
	}
}

// heal joins a broker again; one that lost its registration finds out first.
func (w *world) heal(n int) {
	p := w.procs[n]
	w.note("n%d heals", n+1)
	w.apart[n], w.deaf[n] = false, false
	if w.live[n] == 0 {
		w.tell(n, replica.Live{Node: nodeName(n)})
		w.supply.learn("", func(k *known) {
			k.revision++
			w.live[n] = incarnation(k)
		})
		inc := w.live[n]
		p.task(func() {
			p.inc = inc
			p.tellAll(replica.Live{Node: nodeName(n), Incarnation: inc})
		})
		for m := range nodes {
			if m != n && w.running(m) {
				w.tell(m, replica.Live{Node: nodeName(n), Incarnation: inc})
			}
		}
	}
	for m := range nodes { // what it missed of the others
		if m != n {
			w.tell(n, replica.Live{Node: nodeName(m), Incarnation: w.live[m]})
		}
	}
	w.inform(p)
	w.reconnect(n)
}
