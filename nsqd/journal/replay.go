package journal

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstepmq/lockstep/internal/vfs"
)

// Mark is a place in the journal: all groups up to Group are in the checkpoint. The zero Mark means
// that the checkpoint is lost. Synced is the highest group known to be durable when the mark was
// made; it may be above Group.
type Mark struct {
	Group  uint64
	CRC    uint32 // header crc of Group; 0 if there was none
	Synced uint64
	// Files, if not 0, is the number of files of at least FileBytes that held groups at that time; a file once
	// used always holds some. Nothing in the remaining files shows that a file was removed.
	Files     int
	FileBytes int64
}

// Recovery is the result of a replay.
type Recovery struct {
	Groups int   // number of replayed groups
	Bytes  int64 // bytes of their bodies
	Torn   bool  // an unacknowledged group was cut
	// Corrupt is not nil if acknowledged groups cannot be read: the whole directory is then
	// doubtful. It wraps ErrCorrupt.
	Corrupt error
	// Salvaged is the number of groups replayed after the unreadable ones. Groups includes them.
	Salvaged int
}

const fileSuffix = ".log"

func fileName(dir string, number uint64) string {
	return path.Join(dir, fmt.Sprintf("%016x%s", number, fileSuffix))
}

// image is a file with its content.
type image struct {
	number uint64
	data   []byte
	first  Header // header of the group at its beginning; zero if there is none
}

// begun reports whether the file ever held a group: it is not all zeros.
func (im *image) begun() bool {
	return slices.ContainsFunc(im.data, func(b byte) bool { return b != 0 })
}

func readImages(fs vfs.FS, dir string) ([]*image, error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	var images []*image
	for _, name := range names {
		digits, ok := strings.CutSuffix(name, fileSuffix)
		number, err := strconv.ParseUint(digits, 16, 64)
		if !ok || err != nil {
			continue
		}
		data, err := readFile(fs, path.Join(dir, name))
		if err != nil {
			return nil, err
		}
		first, _ := decodeHeader(data)
		images = append(images, &image{number: number, data: data, first: first})
	}
	slices.SortFunc(images, func(a, b *image) int { return cmp.Compare(a.first.Group, b.first.Group) })
	return images, nil
}

func readFile(fs vfs.FS, name string) ([]byte, error) {
	b, err := vfs.ReadFile(fs, name)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return b, nil
}

// replayer walks the groups after a mark.
type replayer struct {
	next    uint64 // number of the next group
	crc     uint32 // header crc of the group before
	synced  uint64 // highest group that any header names as durable
	highest uint64 // highest group that any header names
	gen     uint64 // highest generation
	Recovery
}

// replay passes the bodies of the groups after the mark to visit, in order, up to the first group
// that is not whole. Then it decides whether that group is torn or corrupt (invariant 1).
func (r *replayer) replay(images []*image, visit func(body []byte) error) error {
	for _, im := range images {
		r.gen = max(r.gen, im.first.Generation)
	}
	for _, im := range images {
		r.scanHeaders(im.data)
	}
	if r.next == 1 {
		r.newestRun(images)
	}
	for again := true; again; {
		again = false
		for _, im := range images {
			before := r.next
			if err := r.walk(im, visit); err != nil {
				return err
			}
			again = again || r.next > before
		}
	}
	r.Torn = r.highest >= r.next
	if r.synced < r.next {
		return nil
	}
	r.Corrupt = fmt.Errorf("%w: group %d cannot be read, and group %d was acknowledged", ErrCorrupt, r.next, r.synced)
	return r.salvage(images, visit)
}

// judgeFiles checks whether files that the mark counts are missing, empty or cut short: they may
// have held the groups acknowledged last.
func (r *replayer) judgeFiles(images []*image, from Mark) {
	left := 0
	for left < from.Files {
		at := slices.IndexFunc(images, func(im *image) bool { return int64(len(im.data)) >= from.FileBytes && im.begun() })
		if at < 0 {
			break
		}
		left, images = left+1, images[at+1:]
	}
	if left < from.Files && r.Corrupt == nil {
		r.Corrupt = fmt.Errorf("%w: %d of the %d files of the journal are left", ErrCorrupt, left, from.Files)
	}
}

// newestRun begins with the oldest group from which on none is missing. Groups after the lost mark
// were never overwritten, so the run includes them all. It excludes older groups that a reused file
// still contains.
func (r *replayer) newestRun(images []*image) {
	groups, newest := map[uint64]Header{}, uint64(0)
	for _, im := range images {
		for at := 0; at+headerSize <= len(im.data); at += Align {
			if h, _, _, err := DecodeGroup(im.data[at:]); err == nil && r.isOwn(h) {
				groups[h.Group], newest = h, max(newest, h.Group)
			}
		}
	}
	for h, ok := groups[newest]; ok; {
		r.next, r.crc = h.Group, h.PrevCRC
		before, found := groups[h.Group-1]
		h, ok = before, found && before.CRC == h.PrevCRC
	}
}

// salvage passes the readable groups after the break to visit, in their order. visit must check
// which of their writes continue its state.
func (r *replayer) salvage(images []*image, visit func(body []byte) error) error {
	bodies := map[uint64][]byte{}
	for _, im := range images {
		for at := 0; at+headerSize <= len(im.data); at += Align {
			if h, body, _, err := DecodeGroup(im.data[at:]); err == nil && h.Group > r.next && r.isOwn(h) {
				bodies[h.Group] = body
			}
		}
	}
	for _, number := range slices.Sorted(maps.Keys(bodies)) {
		if err := visit(bodies[number]); err != nil {
			return err
		}
		r.Groups++
		r.Salvaged++
		r.Bytes += int64(len(bodies[number]))
	}
	return nil
}

// generations is the greatest distance between the generations of the files.
const generations = 1 << 16

// isOwn distinguishes a group from a message body that looks like one: no publisher can know the
// generation.
func (r *replayer) isOwn(h Header) bool {
	return r.gen == 0 || h.Generation <= r.gen+generations && h.Generation+generations >= r.gen
}

// walk visits the groups of one file from r.next on, if the file has that group. The groups before
// it are in the checkpoint, so it does not matter whether they can be read.
func (r *replayer) walk(im *image, visit func([]byte) error) error {
	at := r.locate(im.data)
	for gen := uint64(0); at < len(im.data); {
		h, body, n, err := DecodeGroup(im.data[at:])
		if err != nil || h.Group != r.next || h.PrevCRC != r.crc || gen != 0 && h.Generation != gen {
			return nil // the end of this file's groups, or damage; the caller decides
		}
		if err := visit(body); err != nil {
			return err
		}
		at, gen = at+n, h.Generation
		r.next, r.crc = r.next+1, h.CRC
		r.Groups++
		r.Bytes += int64(len(body))
	}
	return nil
}

// locate returns the place of the next group in a file, the file's end if it is not there.
func (r *replayer) locate(data []byte) int {
	for at := 0; at+headerSize <= len(data); at += Align {
		if h, err := decodeHeader(data[at:]); err == nil && h.Group == r.next && h.PrevCRC == r.crc && r.isOwn(h) {
			return at
		}
	}
	return len(data)
}

// scanHeaders looks at every possible place of a header, to find the highest acknowledged group.
func (r *replayer) scanHeaders(data []byte) {
	for at := 0; at+headerSize <= len(data); at += Align {
		if h, err := decodeHeader(data[at:]); err == nil && r.isOwn(h) {
			r.synced = max(r.synced, h.Synced)
			r.highest = max(r.highest, h.Group)
			r.gen = max(r.gen, h.Generation)
		}
	}
}
