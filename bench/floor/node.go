package main

import "runtime"

const (
	waiting  = 1024    // puts that may wait in a node
	groupMax = 1 << 20 // bytes, but for the last put
)

// put is a PUB or MPUB. Its messages have their lengths before them, as in an MPUB, so that
// puts are joined by appending them. A put of finishes has only the ids of finished messages,
// no sender, and no answer.
type put struct {
	from     *peer
	messages []byte
	n        int
	finished []byte
}

// group is the puts that are handled together.
type group struct {
	puts     []put
	messages []byte
	n        int
	finished []byte
}

func (g *group) reset() {
	*g = group{puts: g.puts[:0], messages: g.messages[:0], finished: g.finished[:0]}
}

func (g *group) add(p put) {
	g.puts, g.messages, g.n = append(g.puts, p), append(g.messages, p.messages...), g.n+p.n
	g.finished = append(g.finished, p.finished...)
}

func (g *group) answer() {
	for _, p := range g.puts {
		if p.from != nil {
			p.from.answer()
		}
	}
	for _, p := range g.puts {
		if p.from != nil {
			p.from.flushAnswers() // once, if the peer has several puts
		}
	}
}

// node gathers puts, handles them in groups, and answers.
type node struct {
	log    *log    // nil: the node only passes on
	next   []*link // members that receive each group
	leader string  // address of the delivering member; "" = this one

	puts        chan put
	subscribers subscribers
	relay       relay    // if another member delivers
	finished    finishes // if this member delivers
}

func newNode(log *log) *node { return &node{log: log, puts: make(chan put, waiting)} }

// passOn adds a member that receives each group.
func (n *node) passOn(address string) error {
	l, err := dial(address)
	if err != nil {
		return err
	}
	n.next = append(n.next, l)
	return nil
}

// loop handles waiting puts, one group at a time. It yields once before, so that goroutines
// that were woken at the same time can add their puts.
func (n *node) loop() error {
	var g group
	for first := range n.puts {
		runtime.Gosched()
		g.reset()
		g.add(first)
		for len(n.puts) > 0 && len(g.messages) < groupMax {
			g.add(<-n.puts)
		}
		if err := n.commit(&g); err != nil {
			return err
		}
		g.answer()
		if n.leader == "" {
			n.subscribers.deliver(g.messages)
			n.subscribers.flush()
		}
	}
	return nil
}

// commit writes the group while the others do. Finishes need no sync and no answer.
func (n *node) commit(g *group) error {
	for _, l := range n.next {
		if err := l.send(g); err != nil {
			return err
		}
	}
	if n.log != nil {
		if _, err := n.log.append(g.finished); err != nil {
			return err
		}
	}
	if g.n == 0 {
		return nil
	}
	if n.log != nil {
		if err := n.log.appendSynced(g.messages); err != nil {
			return err
		}
	}
	for _, l := range n.next {
		if err := l.await(); err != nil {
			return err
		}
	}
	return nil
}
