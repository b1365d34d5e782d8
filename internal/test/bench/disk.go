package bench

import (
	"io/fs"
	"path/filepath"
	"syscall"
)

// DiskUsage returns the sum of the disk space of directories in bytes.
func DiskUsage(dirs []string) (total int64) {
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // files may disappear during the walk
			}
			if st, err := d.Info(); err == nil {
				if sys, ok := st.Sys().(*syscall.Stat_t); ok {
					total += sys.Blocks * 512
				}
			}
			return nil
		})
	}
	return total
}
