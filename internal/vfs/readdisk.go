package vfs

import (
	"errors"
	"io"
	"unsafe"
)

// ReadDisk reads n bytes of a file from the disk: past the page cache if the file system supports that,
// otherwise after it asked the kernel to drop the file from its cache. Unsynced bytes are written
// first, or may be read from memory. Caches of the disk itself, of a controller or of a host are not
// bypassed. Error: io.ErrUnexpectedEOF if the file is shorter, or an error of the file system.
//
// It opens the file separately, because a handle that reads past the page cache also writes past it.
func ReadDisk(on FS, name string, off, n int64) ([]byte, error) {
	f, err := on.Open(name)
	if err != nil {
		return nil, err
	}
	b, err := readDisk(f, off, n)
	return b, errors.Join(err, f.Close())
}

func readDisk(f File, off, n int64) ([]byte, error) {
	from, to := off, off+n
	if f.Direct() {
		from, to = off/SectorBytes*SectorBytes, (to+SectorBytes-1)/SectorBytes*SectorBytes
	} else {
		f.DropCache()
	}
	b := alignedBuffer(int(to - from))
	read, err := f.ReadAt(b, from)
	if read = min(read-int(off-from), int(n)); read == int(n) {
		return b[off-from:][:n:n], nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return nil, err
}

// Aligned returns b at an address where direct writes may begin: b itself if its address is a
// multiple of SectorBytes (as of a large allocation), else a copy.
func Aligned(b []byte) []byte {
	if offset(b) == 0 {
		return b
	}
	buffer := alignedBuffer(len(b))
	return buffer[:copy(buffer, b)]
}

// alignedBuffer allocates n bytes at an address where direct reads and writes may begin.
func alignedBuffer(n int) []byte {
	buffer := make([]byte, n+SectorBytes)
	at := (SectorBytes - offset(buffer)) % SectorBytes
	return buffer[at:][:n:n]
}

// offset is the distance of b's address from the beginning of its sector, in bytes.
func offset(b []byte) int { return int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) % SectorBytes) }
