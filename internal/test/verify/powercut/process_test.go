package powercut

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/sirupsen/logrus"

	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/test/testkit/env"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/store"
)

// process is one running broker: the real store and the real machines, with the
// world in place of the core loop.
type process struct {
	w     *world
	n     int
	inc   ident.Incarnation
	disk  *disk
	store *store.Store
	hosts [partitions]*host
	tasks []func() // reads, compare-and-swaps and news of the metadata, in order
	token uint64
	mail  struct { // under world.mail
		synced   []synced
		answered uint64
	}
}

type synced struct {
	token uint64
	err   error
}

// host is one partition of a process.
type host struct {
	*process
	part  int
	p     *store.Partition
	m     *replica.Machine
	reg   register
	out   replica.Effects
	owner map[uint64]uint64 // token of the submission → token of the machine

	stopping uint64 // replica.View.Stopping that was answered
}

// logger is quiet unless LOCKSTEP_TEST_LOG is set.
func logger() logrus.FieldLogger {
	l := logrus.New()
	if os.Getenv("LOCKSTEP_TEST_LOG") == "" {
		l.SetOutput(io.Discard)
	}
	return l
}

// storeOptions are small, so that files are begun, recycled and cut all the time.
func (w *world) storeOptions(fs vfs.FS) store.Options {
	return store.Options{
		FS: fs, SyncTogether: w.syncTogether, Dir: "data", BootID: "boot", SegmentBytes: 16 << 10, JournalBytes: 16 << 10,
		CheckpointBytes: 48 << 10, TailBytes: 8 << 10, Compact: fold, Log: logger(),
	}
}

func machineOptions(self replica.Peer, part int) replica.Options {
	return replica.Options{
		Self: self, Partition: partition(part), ISRMS: 100, HoldMS: 1000, WriteMS: 200,
		GraceMS: 1500, RetryMS: 20, ElectionMS: 10, WindowBytes: 64 << 10, GroupBytes: 8 << 10, TailBytes: 16 << 10,
		HeldBytes: 1 << 20, Check: env.Mutant() == "",
	}
}

// open starts a store on a disk, and checks what it found.
func (p *process) open() error {
	s, err := store.Open(p.w.storeOptions(p.disk))
	if err != nil {
		return fmt.Errorf("open: n%d does not start: %w", p.n+1, err)
	}
	p.store = s
	for part := range p.hosts {
		sp, ok := s.Partition(partition(part))
		if !ok {
			if p.w.known().stores[p.n][part] != 0 {
				return fmt.Errorf("lost: partition %d of n%d is not there", part, p.n+1)
			}
			if sp, err = s.Create(topic, partition(part)); err != nil {
				return err
			}
			p.w.supply.learn("", func(k *known) { k.stores[p.n][part] = sp.StoreID() })
		}
		k := p.w.known()
		if err := k.recovered(p.n, part, sp); err != nil {
			return fmt.Errorf("%w (partition %d of n%d)", err, part, p.n+1)
		}
		p.w.note("p%d n%d recovered: epoch %d, end %+v, committed %d, start %d", part, p.n+1, sp.Restored().Epoch, sp.Restored().End, sp.Restored().KnownCommitted.Offset, sp.Start().Offset)
		h := &host{process: p, part: part, p: sp, owner: map[uint64]uint64{}}
		replica.Replay(&h.reg, sp.States())
		self := replica.Peer{Node: nodeName(p.n), Incarnation: p.inc, Store: sp.StoreID()}
		h.m = replica.New(sp.Restored(), sp.Index(), &h.reg, machineOptions(self, part))
		p.hosts[part] = h
	}
	return nil
}

// Synced implements store.Sink.
func (p *process) Synced(token uint64, err error) {
	p.w.mail.Lock()
	defer p.w.mail.Unlock()
	p.mail.synced = append(p.mail.synced, synced{token, err})
	p.mail.answered++
	p.w.arrived.Broadcast()
}

// nextSynced takes the oldest answer of the journal.
func (p *process) nextSynced() (synced, bool) {
	p.w.mail.Lock()
	defer p.w.mail.Unlock()
	if len(p.mail.synced) == 0 {
		return synced{}, false
	}
	s := p.mail.synced[0]
	p.mail.synced = p.mail.synced[1:]
	return s, true
}

// deliverSynced notifies the machine whose submission became durable.
func (p *process) deliverSynced() bool {
	s, ok := p.nextSynced()
	if !ok {
		return false
	}
	for _, h := range p.hosts {
		if token, mine := h.owner[s.token]; mine {
			delete(h.owner, s.token)
			h.w.note("p%d n%d synced %d: %v", h.part, h.n+1, s.token, s.err)
			h.step(replica.Synced{Token: token, Err: s.err})
		}
	}
	return true
}

func (p *process) tellAll(ev replica.Event) {
	for _, h := range p.hosts {
		h.step(ev)
	}
}

// task runs something later, unless the process dies before.
func (p *process) task(do func()) { p.tasks = append(p.tasks, do) }

// step steps the machine and executes its effects.
func (h *host) step(ev replica.Event) {
	h.out.Reset()
	h.m.Step(ev, &h.out)
	out := h.out
	h.out = replica.Effects{}
	if s := h.m.View().Stopping; s != h.stopping {
		if h.stopping = s; s != 0 {
			h.task(func() { h.step(replica.ChannelsStopped{Number: s}) })
		}
	}
	h.submit(out)
	for _, e := range out.Send {
		h.spoke(e.Msg)
		h.w.send(h, e)
	}
	for _, r := range out.Read {
		h.task(func() {
			batches, err := h.p.ReadAt(r.From, r.Max)
			if err != nil && !errors.Is(err, store.ErrTrimmed) {
				h.w.fail("damaged: n%d cannot read partition %d at %d: %w", h.n+1, h.part, r.From, err)
			}
			h.step(replica.Read{Token: r.Token, Batches: batches}) // as the coordinator's reader does
		})
	}
	if c := out.CAS; c != nil {
		h.task(func() { h.w.compareAndSwap(h, *c) })
	}
	for _, c := range out.Done {
		h.w.complete(h, c)
	}
	if out.Alarm != nil && h.store.Err() == nil {
		h.w.fail("alarm: partition %d of n%d: %w", h.part, h.n+1, out.Alarm)
	}
}

func (h *host) submit(out replica.Effects) {
	if len(out.Write) == 0 {
		return
	}
	for _, w := range out.Write {
		if w.Kind == queue.WriteTruncate || w.Kind == queue.WriteReset || w.Kind == queue.WriteRestart {
			h.w.supply.learn("", func(k *known) { k.claimed[h.n][h.part] = min(k.claimed[h.n][h.part], w.At.Offset) })
		}
		h.w.seen[w.Kind]++
	}
	for _, x := range out.Write {
		h.w.note("p%d n%d writes %d: epoch %d at %d, %d batches to %d, token %d", h.part, h.n+1, x.Kind, x.Epoch, x.At.Offset, len(x.Batches), h.m.View().End.Offset, h.token+1)
	}
	h.token++
	h.owner[h.token] = out.Token
	if h.store.Queue([]store.Submission{{Partition: h.p, Writes: out.Write}}, h.process, h.token) {
		h.store.Flush()
	}
}

// spoke notes what a message promises. A rejection and a probe's answer promise
// nothing.
func (h *host) spoke(m replica.Message) {
	h.w.note("p%d n%d says %d in %d: prev %d durable %d committed %d, %d batches, reject %t", h.part, h.n+1, m.Kind, m.Epoch, m.Prev.Offset, m.Durable.Offset, m.Committed.Offset, len(m.Batches), m.Reject)
	switch {
	case m.Kind == replica.MsgAppendAck && !m.Reject:
		h.w.supply.learn("", func(k *known) {
			k.answered[h.n][h.part] = max(k.answered[h.n][h.part], m.Epoch)
			k.claimed[h.n][h.part] = max(k.claimed[h.n][h.part], m.Durable.Offset)
		})
	case m.Kind == replica.MsgAppend || m.Kind == replica.MsgChannelState:
		h.w.supply.learn("", func(k *known) { k.answered[h.n][h.part] = max(k.answered[h.n][h.part], m.Epoch) })
	}
}

// retain lets retention go up to the committed end.
func (h *host) retain() {
	below := h.m.View().Committed
	h.w.supply.learn("", func(k *known) {
		if below.Offset > k.trimmed[h.part].Offset {
			k.trimmed[h.part] = below
		}
	})
	if err := h.p.TrimHead(below); err != nil && h.store.Err() == nil {
		h.w.fail("trim: %w", err)
	}
}

// shut ends the process. A killed one has been unplugged before.
func (p *process) shut() {
	if p.store == nil {
		return
	}
	if err := p.store.Close(); err != nil && !errors.Is(err, errDead) && p.store.Err() == nil {
		p.w.fail("close: %w", err)
	}
}

// waiting counts the submissions that the journal has not answered.
func (p *process) waitingLocked() uint64 { return p.token - p.mail.answered }
