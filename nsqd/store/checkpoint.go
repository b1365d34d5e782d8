package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path"
	"sync/atomic"

	"github.com/lockstepmq/lockstep/internal/concurrency"
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/internal/vfs"
	"github.com/lockstepmq/lockstep/nsqd/journal"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// The checkpoint file. On disk, by position, append only; little-endian:
//
//	offset size field
//	     0    4 magic "LKP1"
//	     4    4 crc (CRC-32C of everything after it)
//	     8   20 journal: group included, group synced, crc of the group
//	    28    4 1: nothing is synced; else the journal's files that have groups in them:
//	            their number × 2 + their pages of 4096 bytes × 32
//	    32    4 number of entries
//	    36    4 length of the boot id
//	    40      entries of 80 bytes, then the boot id
//
// Entry: slot, epoch, start offset, start sequence, end offset, end sequence, committed offset, committed sequence,
// time of the newest batch (8 bytes each), header crc of the newest batch (4), header crc before the start (4).
//
// Slots below 2^32 belong to no partition. Slot 0: flags (8 bytes), 1 = clean: the store was closed after this
// checkpoint, and nothing followed. Slots from 1 on: three times the slot of a partition, and the epoch and number of
// the channel state in its snapshot. The snapshot on disk may be newer. Slots from 2^31 on: the slot of a partition,
// and the numbers of its identity mark.
const (
	checkpointMagic      = 0x31504b4c
	checkpointHeaderSize = 40
	checkpointEntrySize  = 80
	flagClean            = 1
	reservedSlots        = 1 << 32
	markSlots            = 1 << 31
	versionsPerEntry     = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type checkpoint struct {
	mark     journal.Mark
	bootID   string
	noSync   bool                          // later submissions were acknowledged from the page cache
	clean    bool                          // the store was closed right after it
	entries  map[uint64]entry              // by slot
	versions map[uint64]version            // of the channel snapshots, by slot
	marks    map[uint64]queue.IdentityMark // during decoding: marks of the entries that follow, by slot
}

// version names one version of a channel state.
type version struct{ epoch, n uint64 }

func (v version) less(w version) bool {
	return v.epoch < w.epoch || v.epoch == w.epoch && v.n < w.n
}

// fields are the ten numbers of an entry.
type fields [checkpointEntrySize / 8]uint64

// entry is the state of one partition at a group of the journal.
type entry struct {
	epoch      ident.Epoch
	start, end ident.Position
	committed  ident.Position
	lastTimeNS int64 // not before the time of the newest batch
	lastCRC    uint32
	startCRC   uint32 // checksum from which the first batch continues
	identities queue.IdentityMark
}

func (c *checkpoint) encode(order []uint64) []byte {
	le := binary.LittleEndian
	b := make([]byte, checkpointHeaderSize, checkpointHeaderSize+len(order)*checkpointEntrySize+len(c.bootID))
	le.PutUint32(b, checkpointMagic)
	le.PutUint64(b[8:], c.mark.Group)
	le.PutUint64(b[16:], c.mark.Synced)
	le.PutUint32(b[24:], c.mark.CRC)
	if c.noSync {
		le.PutUint32(b[28:], 1)
	} else {
		le.PutUint32(b[28:], uint32(c.mark.Files)<<1|uint32(c.mark.FileBytes/4096)<<5)
	}
	le.PutUint32(b[36:], uint32(len(c.bootID)))
	for _, f := range c.fields(order) {
		for _, n := range f {
			b = le.AppendUint64(b, n)
		}
	}
	le.PutUint32(b[32:], uint32((len(b)-checkpointHeaderSize)/checkpointEntrySize))
	b = append(b, c.bootID...)
	le.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
	return b
}

// fields returns all entries in their order on disk.
func (c *checkpoint) fields(order []uint64) (all []fields) {
	if c.clean {
		all = append(all, fields{0, flagClean})
	}
	next, at := uint64(1), fields{}
	n := 0
	for _, slot := range order {
		v, ok := c.versions[slot]
		if !ok {
			continue
		}
		at[0] = next
		copy(at[1+3*n:], []uint64{slot, v.epoch, v.n})
		if n++; n == versionsPerEntry {
			all = append(all, at)
			next, at, n = next+1, fields{}, 0
		}
	}
	if n > 0 {
		all = append(all, at)
	}
	next = markSlots
	for _, slot := range order {
		if mark := c.entries[slot].identities; mark != (queue.IdentityMark{}) {
			at := fields{next, slot}
			n := markNumbers(mark)
			copy(at[2:], n[:])
			all = append(all, at)
			next++
		}
	}
	for _, slot := range order {
		e := c.entries[slot]
		all = append(all, fields{
			slot, uint64(e.epoch), uint64(e.start.Offset), uint64(e.start.Sequence), uint64(e.end.Offset), uint64(e.end.Sequence),
			uint64(e.committed.Offset), uint64(e.committed.Sequence), uint64(e.lastTimeNS), uint64(e.lastCRC) | uint64(e.startCRC)<<32,
		})
	}
	return all
}

func (c *checkpoint) add(n fields) {
	switch {
	case n[0] == 0:
		c.clean = n[1]&flagClean != 0
	case n[0] >= markSlots && n[0] < reservedSlots:
		c.marks[n[1]] = markOf([identityNumbers]uint64(n[2:]))
	case n[0] < reservedSlots:
		for v := n[1:]; len(v) > 0; v = v[3:] {
			if v[0] != 0 {
				c.versions[v[0]] = version{v[1], v[2]}
			}
		}
	default:
		c.entries[n[0]] = entry{
			epoch: ident.Epoch(n[1]),
			start: position(n[2], n[3]), end: position(n[4], n[5]), committed: position(n[6], n[7]),
			lastTimeNS: int64(n[8]), lastCRC: uint32(n[9]), startCRC: uint32(n[9] >> 32), identities: c.marks[n[0]],
		}
	}
}

func decodeCheckpoint(b []byte) (*checkpoint, error) {
	le := binary.LittleEndian
	if len(b) < checkpointHeaderSize || le.Uint32(b) != checkpointMagic || le.Uint32(b[4:]) != crc32.Checksum(b[8:], castagnoli) {
		return nil, fmt.Errorf("%w: checkpoint of %d bytes", ErrCorrupt, len(b))
	}
	c := &checkpoint{noSync: le.Uint32(b[28:]) == 1, entries: map[uint64]entry{}, versions: map[uint64]version{}, marks: map[uint64]queue.IdentityMark{}}
	c.mark = journal.Mark{Group: le.Uint64(b[8:]), Synced: le.Uint64(b[16:]), CRC: le.Uint32(b[24:])}
	if files := le.Uint32(b[28:]); files != 1 { // 0: there were none
		c.mark.Files, c.mark.FileBytes = int(files>>1&0xf), int64(files>>5)*4096
	}
	count, boot := uint64(le.Uint32(b[32:])), uint64(le.Uint32(b[36:]))
	if uint64(len(b)) != checkpointHeaderSize+count*checkpointEntrySize+boot {
		return nil, fmt.Errorf("%w: checkpoint of %d bytes with %d entries", ErrCorrupt, len(b), count)
	}
	b = b[checkpointHeaderSize:]
	for ; count > 0; count-- {
		var n fields
		for i := range n {
			n[i] = le.Uint64(b[8*i:])
		}
		c.add(n)
		b = b[checkpointEntrySize:]
	}
	c.bootID, c.marks = string(b), nil
	return c, nil
}

func position(offset, sequence uint64) ident.Position {
	return ident.Position{Offset: ident.Offset(offset), Sequence: ident.Sequence(sequence)}
}

// writeFile replaces a small file durably and atomically.
func writeFile(fs vfs.FS, name string, b []byte) error {
	err := createFile(fs, name+temporary, b, vfs.File.Sync)
	if err == nil {
		err = fs.Rename(name+temporary, name)
	}
	if err == nil {
		err = syncDirs(fs, path.Dir(name))
	}
	if err != nil {
		return fmt.Errorf("store: replace %s: %w", name, err)
	}
	return nil
}

// temporary ends the names of files that will replace others.
const temporary = ".tmp"

// createFile writes a new file and calls then, if not nil, before it closes the file.
func createFile(fs vfs.FS, name string, b []byte, then func(vfs.File) error) error {
	f, err := fs.Create(name)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil && then != nil {
		err = then(f)
	}
	return errors.Join(err, f.Close())
}

// atOnce is the number of partitions that are opened or synced at once. Each takes several calls that
// wait for the disk, and the file system combines concurrent syncs.
const atOnce = 32

// forEach runs f for all numbers below n, up to atOnce at a time, until an error, which it returns.
func forEach(n int, f func(i int) error) (first error) {
	var failed atomic.Bool
	concurrency.Each(n, atOnce, func(i int) {
		if failed.Load() {
			return
		}
		if err := f(i); err != nil && failed.CompareAndSwap(false, true) {
			first = err
		}
	})
	return first
}

// forEachPaced runs f for all numbers below n, one at a time while it keeps up. Whenever behind (called with the number
// done) is true, it doubles the number of concurrent calls, otherwise it halves it.
func forEachPaced(n int, behind func(done int) bool, f func(i int) error) error {
	width := 1
	for done := 0; done < n; {
		some := min(width, n-done)
		if err := forEach(some, func(i int) error { return f(done + i) }); err != nil {
			return err
		}
		if done += some; behind(done) {
			width = min(2*width, atOnce)
		} else {
			width = max(width/2, 1)
		}
	}
	return nil
}
