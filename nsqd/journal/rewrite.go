package journal

import (
	"fmt"

	"github.com/lockstepmq/lockstep/internal/vfs"
)

// rewriteUnsynced makes the replayed groups durable of which no header states that they are: the
// last group. A process that was killed, or whose sync failed, left it in the page cache, perhaps
// in clean pages. So it is written again, not only synced. The same bytes go to the same place; if
// that write is torn, the group was still never acknowledged.
func (r *replayer) rewriteUnsynced(fs vfs.FS, dir string, images []*image) error {
	for _, im := range images {
		if doubtful := r.unsyncedGroups(im.data); len(doubtful) > 0 {
			if err := rewrite(fs, fileName(dir, im.number), im.data, doubtful); err != nil {
				return err
			}
		}
	}
	return nil
}

// span is a range of a file.
type span struct{ from, to int }

// unsyncedGroups are the ranges of the groups that may be in the page cache only.
func (r *replayer) unsyncedGroups(data []byte) (spans []span) {
	for at := 0; at+headerSize <= len(data); at += Align {
		if h, err := decodeHeader(data[at:]); err == nil && r.isOwn(h) && h.Group > r.synced {
			spans = append(spans, span{at, min(at+headerSize+int(h.Length), len(data))})
		}
	}
	return spans
}

func rewrite(fs vfs.FS, name string, data []byte, spans []span) error {
	f, err := fs.Open(name)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	defer f.Close()
	for _, s := range spans {
		if _, err := f.WriteAt(data[s.from:s.to], int64(s.from)); err != nil {
			return fmt.Errorf("journal: rewrite the last group of %s: %w", name, err)
		}
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("journal: sync the last group of %s: %w", name, err)
	}
	return nil
}
