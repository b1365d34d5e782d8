package journal

import (
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstepmq/lockstep/internal/vfs"
)

// Mark is a position in the journal: all groups up to Group are in the checkpoint. The zero Mark means that the
// checkpoint is lost. Synced is the highest group known to be durable when the mark was made; it may be above Group.
type Mark struct {
	Group  uint64
	CRC    uint32 // header crc of Group; 0 if there was none
	Synced uint64
	// Files, if not 0, is the number of files of at least FileBytes that had groups at that time. A file that was used
	// once always contains groups, and without the number nothing would show that a file was removed.
	Files     int
	FileBytes int64
}

// Recovery is the result of a replay.
type Recovery struct {
	Groups int   // number of replayed groups
	Bytes  int64 // bytes of their bodies
	Torn   bool  // an unacknowledged group was cut
	// Corrupt, an errCorrupt, means that acknowledged groups cannot be read: the whole directory is doubtful.
	Corrupt error
	// Salvaged is the number of groups replayed after the unreadable ones. Groups includes them.
	Salvaged int
}

const fileSuffix = ".log"

func fileName(dir string, number uint64) string {
	return path.Join(dir, fmt.Sprintf("%016x%s", number, fileSuffix))
}

type image struct {
	number uint64
	data   []byte
}

// begun reports whether the file has ever held a group. Each group at its beginning is written over another one or over
// zeros, so the first sector, once it is not zero, remains so after any torn write. The other sectors do not.
func (im *image) begun() bool {
	return slices.ContainsFunc(im.data[:min(Align, len(im.data))], func(b byte) bool { return b != 0 })
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
		data, err := vfs.ReadFile(fs, path.Join(dir, name))
		if err != nil {
			return nil, err
		}
		images = append(images, &image{number: number, data: data})
	}
	return images, nil
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
		first, _ := decodeHeader(im.data) // a file never begins inside a message body
		r.gen = max(r.gen, first.Generation)
	}
	for _, im := range images {
		for _, h := range r.headers(im.data) {
			r.synced, r.highest, r.gen = max(r.synced, h.Synced), max(r.highest, h.Group), max(r.gen, h.Generation)
		}
	}
	if r.next == 1 {
		r.newestRun(images)
	}
	for again := true; again; { // a reused file has later groups than files with higher numbers
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
	r.Corrupt = fmt.Errorf("%w: group %d cannot be read, and group %d was acknowledged", errCorrupt, r.next, r.synced)
	return r.salvage(images, visit)
}

// judgeFiles checks whether files that the mark counts, perhaps with the last groups, are missing or empty.
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
		r.Corrupt = fmt.Errorf("%w: %d of the %d files of the journal are left", errCorrupt, left, from.Files)
	}
}

// newestRun begins with the first group of the newest run without a gap. Groups after the lost mark were never
// overwritten, so the run includes them all. It excludes older groups that a reused file still contains.
func (r *replayer) newestRun(images []*image) {
	groups, newest := map[uint64]header{}, uint64(0)
	for _, im := range images {
		for at, h := range r.headers(im.data) {
			if _, _, _, err := DecodeGroup(im.data[at:]); err == nil {
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

// salvage passes the readable groups after the break to visit, which checks whether they continue its state.
func (r *replayer) salvage(images []*image, visit func(body []byte) error) error {
	bodies := map[uint64][]byte{}
	for _, im := range images {
		for at, h := range r.headers(im.data) {
			if _, body, _, err := DecodeGroup(im.data[at:]); err == nil && h.Group > r.next {
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

// isOwn distinguishes a group from a message body that looks like a group: no publisher can know the generation.
func (r *replayer) isOwn(h header) bool {
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

// locate returns the offset of the next group in a file, or the file's end if the group is not in it.
func (r *replayer) locate(data []byte) int {
	for at, h := range r.headers(data) {
		if h.Group == r.next && h.PrevCRC == r.crc {
			return at
		}
	}
	return len(data)
}

// headers yields every header of this journal in a file, with its offset.
func (r *replayer) headers(data []byte) iter.Seq2[int, header] {
	return func(yield func(int, header) bool) {
		for at := 0; at+headerSize <= len(data); at += Align {
			if h, err := decodeHeader(data[at:]); err == nil && r.isOwn(h) && !yield(at, h) {
				return
			}
		}
	}
}

// rewriteUnsynced makes the last replayed group durable, which no later header states to be durable. A process that
// was killed, or whose sync failed, left it in the page cache, perhaps in clean pages. So it is written again, not only
// synced. The same bytes are written at the same offset; if that write is torn, the group was still never acknowledged.
func (r *replayer) rewriteUnsynced(fs vfs.FS, dir string, images []*image) error {
	for _, im := range images {
		var unsynced [][2]int // from, to
		for at, h := range r.headers(im.data) {
			if h.Group > r.synced {
				unsynced = append(unsynced, [2]int{at, min(at+headerSize+int(h.Length), len(im.data))})
			}
		}
		if len(unsynced) == 0 {
			continue
		}
		if err := rewrite(fs, fileName(dir, im.number), im.data, unsynced); err != nil {
			return fmt.Errorf("journal: rewrite the last group: %w", err)
		}
	}
	return nil
}

func rewrite(fs vfs.FS, name string, data []byte, ranges [][2]int) error {
	f, err := fs.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, r := range ranges {
		if _, err := f.WriteAt(data[r[0]:r[1]], int64(r[0])); err != nil {
			return err
		}
	}
	return f.Sync()
}
