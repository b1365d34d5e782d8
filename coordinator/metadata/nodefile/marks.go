package nodefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lockstepmq/lockstep/coordinator/metadata/etcd/lifecycle"
)

// markName is the file whose inode and time of birth distinguish a data path from a copy.
const markName = "node.mark"

// Marks are properties of DIR/node.mark that no copy of the file shares. node.json records them, and each start
// compares them. A property that the system does not report is zero and ignored. On disk, by name (JSON): append only.
type Marks struct {
	Inode   uint64 `json:"inode,omitempty"`
	Born    int64  `json:"born,omitempty"`    // Unix time in ns
	Device  uint64 `json:"device,omitempty"`  // may change when the machine restarts
	Machine string `json:"machine,omitempty"` // /etc/machine-id
}

// Mark creates DIR/node.mark if it does not exist, and returns its properties.
func Mark(dir string) (Marks, error) {
	at := filepath.Join(dir, markName)
	f, err := os.OpenFile(at, os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		return Marks{}, fmt.Errorf("mark the data path: %w", err)
	}
	return readMarks(at)
}

// CheckMarks compares a data path with its recorded marks. hasLog: the path has the log of an etcd member.
func CheckMarks(dir string, r Record, hasLog bool) (lifecycle.Doubt, error) {
	switch {
	case r.Doubted, hasLog && r.Boot == 0: // every start is counted, so a log without a counted start means that the record was lost
		return lifecycle.DoubtCopied, nil
	case r.Marks == Marks{}: // a new data path
		return lifecycle.DoubtNone, nil
	}
	now, err := readMarks(filepath.Join(dir, markName))
	if errors.Is(err, os.ErrNotExist) {
		return lifecycle.DoubtCopied, nil
	}
	if err != nil {
		return lifecycle.DoubtNone, err
	}
	return r.Marks.compare(now), nil
}

func (m Marks) compare(now Marks) lifecycle.Doubt {
	differs := func(a, b uint64) bool { return a != 0 && b != 0 && a != b }
	switch {
	case differs(m.Inode, now.Inode), differs(uint64(m.Born), uint64(now.Born)):
		return lifecycle.DoubtCopied
	case differs(m.Device, now.Device), m.Machine != "" && now.Machine != "" && m.Machine != now.Machine:
		return lifecycle.DoubtMoved
	}
	return lifecycle.DoubtNone
}
