package vfs

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Direct implements File. A kernel or file system that does not say what it
// demands, or demands more than sectors, leaves the page cache in use.
func (f osFile) Direct() bool {
	fd := int(f.Fd())
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 || !sectors(st.Dio_offset_align) || !sectors(st.Dio_mem_align) {
		return false
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags|unix.O_DIRECT)
	}
	return err == nil
}

// sectors reports whether what begins at a sector is aligned; 0 says that
// nothing is.
func sectors(align uint32) bool { return align > 0 && SectorBytes%align == 0 }

// Aligned is b where direct writes may begin: b itself, if it is the beginning
// of a large allocation, else a copy.
func Aligned(b []byte) []byte {
	if offset(b) == 0 {
		return b
	}
	room := make([]byte, len(b)+SectorBytes)
	room = room[(SectorBytes-offset(room))%SectorBytes:]
	return room[:copy(room, b)]
}

// offset is how far into a sector the address of b lies.
func offset(b []byte) int { return int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) % SectorBytes) }
