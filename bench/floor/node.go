package main

import "runtime"

const (
	waiting  = 1024    // puts that may wait in a node
	groupMax = 1 << 20 // bytes, but for the last put
)

// put is a PUB or MPUB. Its messages have their lengths before them, as in an
// MPUB, so that puts are joined by putting them behind each other. Or it has only
// ids of messages that were finished, and is from nobody, who waits for nothing.
type put struct {
	from     *peer
	messages []byte
	n        int
	finished []byte
}

// group is what is done with puts together.
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
			p.from.flushAnswers() // once, if it has several
		}
	}
}

// node gathers puts, does with each group what there is to do, and answers.
type node struct {
	log    *log    // nil: it only passes on
	next   []*link // where each group goes too
	leader string  // address of who delivers; "": itself

	puts        chan put
	subscribers subscribers
	relay       relay    // if another delivers
	finished    finishes // if it delivers itself
}

func newNode(log *log) *node { return &node{log: log, puts: make(chan put, waiting)} }

// passOn makes the address one where each group goes too.
func (n *node) passOn(address string) error {
	l, err := dial(address)
	if err != nil {
		return err
	}
	n.next = append(n.next, l)
	return nil
}

// loop takes what waits, one group at a time. It gives way once before, so that
// who was woken at the same time can put too.
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

// commit writes the group while the others do. What was finished is not worth a
// sync, nor an answer.
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
