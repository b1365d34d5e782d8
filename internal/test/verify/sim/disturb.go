package sim

func (w *world) injectNetwork(f fault, n *node) bool {
	other := w.nodes[(n.index+1+f.node%(len(w.nodes)-1))%len(w.nodes)]
	one, back := &w.net.links[n.index][other.index], &w.net.links[other.index][n.index]
	switch f.kind {
	case cutOneWay:
		if f.draw&1 == 0 {
			one = back
		}
		w.cut(f, one)
	case cutPair:
		w.cut(f, one, back)
	case isolateNode:
		w.isolate(f, n)
	case isolateFully:
		w.isolate(f, n)
		w.cutFromEtcd(f, n)
	case splitHalves:
		w.split(f)
	case cutRing:
		for i := range w.nodes { // each is deaf to the one before it
			w.cut(f, &w.net.links[i][(i+1)%len(w.nodes)])
		}
	case loseMessages:
		w.disturb(f, func(l *link) { l.loss = 5 + int(f.draw%40) }, func(l *link) { l.loss = 0 })
	case repeatMessages:
		w.disturb(f, func(l *link) { l.dup, l.shuffle = 30, true }, func(l *link) { l.dup, l.shuffle = 0, false })
	case slowLink:
		one.delay = micros(f.draw % uint64(w.times.lag))
		w.until(f, func() { one.delay = 0 })
	}
	return true
}

func (w *world) cut(f fault, links ...*link) {
	for _, l := range links {
		l.cut++
	}
	w.until(f, func() {
		for _, l := range links {
			l.cut--
		}
	})
}

func (w *world) isolate(f fault, n *node) {
	for i := range w.nodes {
		if i != n.index {
			w.cut(f, &w.net.links[i][n.index], &w.net.links[n.index][i])
		}
	}
}

// split cuts between two halves; one half may keep etcd for itself.
func (w *world) split(f fault) {
	side := func(i int) bool { return f.draw>>i&1 == 0 }
	for i := range w.nodes {
		for j := range w.nodes {
			if side(i) != side(j) {
				w.cut(f, &w.net.links[i][j])
			}
		}
		if side(i) && f.draw>>20&1 == 0 {
			w.cutFromEtcd(f, w.nodes[i])
		}
	}
}

func (w *world) disturb(f fault, on, off func(*link)) {
	for i := range w.net.links {
		for j := range w.net.links[i] {
			on(&w.net.links[i][j])
		}
	}
	w.until(f, func() {
		for i := range w.net.links {
			for j := range w.net.links[i] {
				off(&w.net.links[i][j])
			}
		}
	})
}

func (w *world) cutFromEtcd(f fault, n *node) {
	w.etcd.cut[n.index]++
	w.until(f, func() { w.etcd.cut[n.index]-- })
}

func (w *world) injectMetadata(f fault, n *node) bool {
	e := &w.etcd
	switch f.kind {
	case etcdDown:
		if e.down {
			return false
		}
		w.note("etcd", -1, "is down")
		e.down = true
		w.until(f, func() { e.down = false })
	case etcdCut:
		w.cutFromEtcd(f, n)
	case etcdLosesAnswers:
		e.loseP = 10 + int(f.draw%80)
		w.until(f, func() { e.loseP = 0 })
	case etcdLate:
		e.lateP = 20 + int(f.draw%80)
		w.until(f, func() { e.lateP = 0 })
	case watchLag:
		e.lag[n.index] = micros(f.draw % uint64(2*w.times.isr))
		w.until(f, func() { e.lag[n.index] = 0 })
	case watchGap:
		e.gap[n.index] = true
	case compactMetadata:
		e.compact()
	case loseRegistration:
		if e.live[n.index].incarnation == 0 || e.down {
			return false
		}
		e.revoke(n.index, e.live[n.index].incarnation)
	}
	return true
}
