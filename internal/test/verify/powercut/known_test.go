package powercut

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/lockstepmq/lockstep/coordinator/metadata"
	"github.com/lockstepmq/lockstep/coordinator/replica"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd/queue"
	"github.com/lockstepmq/lockstep/nsqd/store"
)

const (
	nodes      = 3
	partitions = 3
	topic      = "t"
	// producer is in the request ids of all puts.
	producer = 7
)

func partition(p int) ident.Partition { return ident.Partition{Topic: 1, Number: uint16(p)} }

func nodeName(n int) ident.Node { return ident.Node(fmt.Sprintf("n%d", n+1)) }

// put is an answered put: where it begins.
type put struct {
	part  int
	id    uint64
	first ident.Sequence
}

// change is a confirmed change of the channels.
type change struct {
	part int
	n    uint64
}

// known is what the world outside the disks knows: the metadata, and what was
// answered. A copy is a snapshot: slices only grow.
type known struct {
	revision int64 // of the metadata; incarnations are revisions
	parts    [partitions]metadata.PartitionState
	stores   [nodes][partitions]ident.StoreID
	acked    []put
	gone     []put // reported rolled back
	changes  []change
	answered [nodes][partitions]ident.Epoch  // in which a store has spoken
	claimed  [nodes][partitions]ident.Offset // acknowledged as durable, and not cut since
	trimmed  [partitions]ident.Position      // retention went no further
	strict   bool                            // claimed is looked at
}

// fork is a copy that may grow by itself.
func (k *known) fork() known {
	c := *k
	c.acked, c.gone, c.changes = slices.Clip(k.acked), slices.Clip(k.gone), slices.Clip(k.changes)
	return c
}

// made has the messages of all puts so far: each is compared some hundred times.
var made sync.Map

// bodies are the messages of a put: its number says it all.
func bodies(id uint64) [][]byte {
	if all, ok := made.Load(id); ok {
		return all.([][]byte)
	}
	all := makeBodies(id)
	made.Store(id, all)
	return all
}

func makeBodies(id uint64) [][]byte {
	rng := rand.New(rand.NewPCG(id, 77))
	count := 1
	if rng.IntN(3) == 0 {
		count += 1 + rng.IntN(4)
	}
	all := make([][]byte, count)
	for i := range all {
		size := rng.IntN(1500)
		if rng.IntN(50) == 0 {
			size = 20 << 10 // does not fit into one file of the journal
		}
		all[i] = make([]byte, size)
		x := rng.Uint64()
		for j := range all[i] {
			all[i][j] = byte(x >> (j % 8 * 8))
			if j%8 == 7 {
				x = x*6364136223846793005 + 1442695040888963407
			}
		}
	}
	return all
}

func draft(id uint64) queue.Draft {
	d := queue.NewDraft(0)
	for _, b := range bodies(id) {
		_ = d.AddMessage(queue.Message{Body: b})
	}
	return d.Draft(ident.RequestID{Producer: producer, N: id})
}

// contents is what a log holds.
type contents struct {
	start, end ident.Position
	trimmed    ident.Sequence // retention went up to here on some replica
	puts       map[uint64]ident.Sequence
	chain      []uint32 // checksums of the headers, oldest first
}

// read reads a log whole and checks every byte of it (check 2).
func (k *known) read(part int, p *store.Partition, end ident.Position) (contents, error) {
	c := contents{start: p.Start(), end: end, trimmed: k.trimmed[part].Sequence, puts: map[uint64]ident.Sequence{}}
	at, crc, joined := c.start, uint32(0), false
	for at.Offset < end.Offset {
		batches, err := p.ReadAt(at.Offset, 64<<10)
		if err != nil || len(batches) == 0 {
			return c, fmt.Errorf("damaged: nothing can be read at %+v of a log that ends at %+v: %w", at, end, err)
		}
		for _, b := range batches {
			if b.At != at || joined && b.PrevCRC != crc {
				return c, fmt.Errorf("damaged: the chain breaks at %+v after %08x: a batch for %+v, epoch %d, after %08x", at, crc, b.At, b.Epoch, b.PrevCRC)
			}
			if err := c.add(b); err != nil {
				return c, err
			}
			at, crc, joined = b.End, b.CRC, true
			c.chain = append(c.chain, b.CRC)
		}
	}
	if at != end {
		return c, fmt.Errorf("damaged: the log ends at %+v, not %+v", at, end)
	}
	return c, nil
}

func (c *contents) add(b queue.Batch) error {
	if b.Control != 0 {
		return nil
	}
	// A replica does not recognise requests that its retention has removed.
	if at, again := c.puts[b.Request.N]; again && at >= c.trimmed {
		return fmt.Errorf("twice: put %d is at %+v again", b.Request.N, b.At)
	}
	c.puts[b.Request.N] = b.At.Sequence
	want, got := bodies(b.Request.N), b.Messages(0, 1<<20, nil)
	if len(want) != len(got) {
		return fmt.Errorf("damaged: put %d has %d messages, %d were sent", b.Request.N, len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(want[i], got[i].Body) {
			return fmt.Errorf("damaged: message %d of put %d is not what was sent", i, b.Request.N)
		}
	}
	return nil
}

// recovered checks one partition of a store that was just opened.
func (k *known) recovered(n, part int, p *store.Partition) error {
	r := p.Restored()
	if p.StoreID() != k.stores[n][part] {
		return fmt.Errorf("identity: the store id was renewed")
	}
	if r.Epoch < k.answered[n][part] {
		return fmt.Errorf("epoch: %d is recovered, it answered in %d", r.Epoch, k.answered[n][part])
	}
	if k.strict && r.End.Offset < k.claimed[n][part] {
		return fmt.Errorf("claimed: the log ends at %d, %d was acknowledged", r.End.Offset, k.claimed[n][part])
	}
	c, err := k.read(part, p, r.End)
	if err != nil {
		return err
	}
	if !slices.Contains(k.parts[part].ISR, ident.Member{Node: nodeName(n), Store: p.StoreID()}) {
		return nil
	}
	if err := k.holds(part, c); err != nil {
		return err
	}
	var reg register
	replica.Replay(&reg, p.States())
	return k.holdsChanges(part, &reg)
}

// holds: everything that was answered is there, unless retention took it.
func (k *known) holds(part int, c contents) error {
	if c.start.Sequence > k.trimmed[part].Sequence {
		return fmt.Errorf("lost: the log begins at %+v, retention went to %+v", c.start, k.trimmed[part])
	}
	for _, a := range k.acked {
		if a.part != part || a.first < c.start.Sequence {
			continue
		}
		if at, ok := c.puts[a.id]; !ok || at != a.first {
			return fmt.Errorf("lost: put %d was answered with sequence %d, and is there: %t, at %d; the log is %+v to %+v",
				a.id, a.first, ok, at, c.start, c.end)
		}
	}
	return nil
}

func (k *known) holdsChanges(part int, reg *register) error {
	for _, c := range k.changes {
		if c.part == part && !reg.has(c.n) {
			return fmt.Errorf("lost: change %d of the channels was confirmed", c.n)
		}
	}
	return nil
}

// nowhere: what was reported rolled back does not come back.
func (k *known) nowhere(part int, c contents) error {
	for _, g := range k.gone {
		if at, ok := c.puts[g.id]; ok && g.part == part {
			return fmt.Errorf("resurrected: put %d was reported rolled back, and is at sequence %d", g.id, at)
		}
	}
	return nil
}

// register is a channel state that only grows: a set of numbers.
type register struct{ bits []byte }

func (r *register) has(n uint64) bool {
	return n/8 < uint64(len(r.bits)) && r.bits[n/8]&(1<<(n%8)) != 0
}

func (r *register) Snapshot() []byte    { return bytes.Clone(r.bits) }
func (r *register) Replace(full []byte) { r.bits = bytes.Clone(full) }
func (r *register) Unlead()             {}
func (r *register) Apply(delta []byte) {
	n := uint64(delta[0]) | uint64(delta[1])<<8
	for uint64(len(r.bits)) <= n/8 {
		r.bits = append(r.bits, 0)
	}
	r.bits[n/8] |= 1 << (n % 8)
}

func encodeChange(n uint64) []byte { return []byte{byte(n), byte(n >> 8)} }

// fold is the store's Options.Fold.
func fold(_ string, _ ident.Partition, confirms []queue.StateVersion) ([]byte, bool) {
	var r register
	replica.Replay(&r, confirms)
	return r.Snapshot(), true
}
