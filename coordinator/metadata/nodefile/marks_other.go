//go:build !linux

package nodefile

import (
	"os"
	"syscall"
)

func readMarks(name string) (Marks, error) {
	info, err := os.Stat(name)
	if err != nil {
		return Marks{}, err
	}
	var m Marks
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		m.Inode, m.Device = uint64(s.Ino), uint64(s.Dev)
	}
	return m, nil
}
