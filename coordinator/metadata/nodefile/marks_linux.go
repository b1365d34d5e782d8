package nodefile

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

func readMarks(name string) (Marks, error) {
	var s unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, name, 0, unix.STATX_INO|unix.STATX_BTIME, &s)
	if err != nil {
		return Marks{}, &os.PathError{Op: "statx", Path: name, Err: err}
	}
	m := Marks{Inode: s.Ino, Device: unix.Mkdev(s.Dev_major, s.Dev_minor)}
	if s.Mask&unix.STATX_BTIME != 0 {
		m.Born = s.Btime.Sec*1e9 + int64(s.Btime.Nsec)
	}
	id, _ := os.ReadFile("/etc/machine-id") // missing: unknown
	m.Machine = strings.TrimSpace(string(id))
	return m, nil
}
