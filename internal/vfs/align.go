package vfs

import "unsafe"

// Aligned returns b at an address where direct writes may begin: b itself if its address is a
// multiple of SectorBytes (as of a large allocation), else a copy.
func Aligned(b []byte) []byte {
	if offset(b) == 0 {
		return b
	}
	room := alignedBuffer(len(b))
	return room[:copy(room, b)]
}

// alignedBuffer allocates n bytes at an address where direct reads and writes may begin.
func alignedBuffer(n int) []byte {
	room := make([]byte, n+SectorBytes)
	at := (SectorBytes - offset(room)) % SectorBytes
	return room[at:][:n:n]
}

// offset is the distance of b's address from the beginning of its sector, in bytes.
func offset(b []byte) int { return int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) % SectorBytes) }
