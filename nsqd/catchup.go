package nsqd

// A snapshot with a million delayed messages takes a quarter of a second to take
// over, and Replace is called on a core loop, where everybody else's partitions
// would wait. So a large one is only noted there, with the deltas that follow it,
// and taken over by whoever asks for the channels next: the broker, by CatchUp, at
// the latest. Only a follower that is elected before that makes its
// loop wait.

// atOnce is the size of a snapshot that is taken over where it arrives.
const atOnce = 64 << 10

// told is what the register has been told and the channels do not show yet.
type told struct {
	bytes []byte
	whole bool // a snapshot, else a delta
}

// Replace takes a snapshot for the present state. A malformed one is reported and
// changes nothing.
func (p *Partition) Replace(full []byte) {
	p.mu.Lock()
	small := len(p.told) == 0 && len(full) <= atOnce
	p.told = append(p.told, told{bytes: full, whole: true})
	p.behind.Store(true)
	p.mu.Unlock()
	if small {
		p.CatchUp()
	}
}

// Apply applies a delta on a follower or at recovery. A malformed one is reported
// and changes nothing.
func (p *Partition) Apply(delta []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.told) > 0 {
		p.told = append(p.told, told{bytes: delta})
		return
	}
	p.applyDeltaLocked(delta)
}

func (p *Partition) applyDeltaLocked(delta []byte) {
	records, err := decodeDelta(delta)
	if err != nil {
		p.report("", "delta of the channels refused", err)
		return
	}
	for _, r := range records {
		p.applyLocked(r)
	}
}

// CatchUp brings the channels to what the register was told. With nothing to do it
// is cheap; it must be called now and then, or what was told piles up.
func (p *Partition) CatchUp() {
	if !p.behind.Load() {
		return
	}
	p.catching.Lock()
	defer p.catching.Unlock()
	for snapshot := p.nextSnapshot(); snapshot != nil; snapshot = p.nextSnapshot() {
		p.takeOver(snapshot)
	}
}

// nextSnapshot applies deltas up to the next snapshot, which stays in the list:
// what is told while it is taken over comes behind it. nil: nothing is left.
func (p *Partition) nextSnapshot() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.told) > 0 && !p.told[0].whole {
		p.applyDeltaLocked(p.told[0].bytes)
		p.told = p.told[1:]
	}
	if len(p.told) == 0 {
		p.told = nil
		p.behind.Store(false)
		return nil
	}
	return p.told[0].bytes
}

// takeOver makes a snapshot the state. Most of the work is done without the lock.
func (p *Partition) takeOver(full []byte) {
	s, err := decodeSnapshot(full)
	channels := make(map[string]*Channel, len(s.channels))
	for _, saved := range s.channels {
		channels[saved.name] = p.restored(saved)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = p.told[1:]
	if err != nil {
		p.report("", "snapshot of the channels refused", err)
		return
	}
	p.paused, p.barrier, p.keep = s.flags&flagPaused != 0, s.barrier, s.keep
	p.carried.replace(s.carried)
	p.channels = channels
}

// restored makes a channel of what a snapshot says of it.
func (p *Partition) restored(s saved) *Channel {
	c := newChannel(p, s.name, s.flags&flagOrdered != 0, s.progress.confirmed)
	c.paused = s.flags&flagPaused != 0
	c.cursor.apply(s.progress)
	c.cursor.start = min(s.start, c.cursor.confirmed)
	c.cursor.clean()
	return c
}
