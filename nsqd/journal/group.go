package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Align is the alignment of groups in bytes.
const Align = 512

const (
	headerSize = 48
	pageBytes  = 4096
	groupMagic = 0x314a4b4c // "LKJ1" read little-endian
)

// errCorrupt means that acknowledged bytes cannot be read.
var errCorrupt = errors.New("journal: corrupt")

// errNoGroup means that no whole group begins here: the end, or a torn tail.
var errNoGroup = errors.New("journal: no group here")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is the header of a group. On disk, by position, append only: see doc.go.
type header struct {
	Length     uint32 // bytes of the body
	BodyCRC    uint32
	PrevCRC    uint32 // header crc of the group before
	Generation uint64
	Group      uint64
	Synced     uint64 // all groups up to this one were durable when the group was written
	CRC        uint32
}

// put encodes the header into b[:headerSize], which is zero, and returns the header crc.
func (h header) put(b []byte) uint32 {
	le := binary.LittleEndian
	le.PutUint32(b, groupMagic)
	le.PutUint32(b[4:], h.Length)
	le.PutUint32(b[8:], h.BodyCRC)
	le.PutUint32(b[12:], h.PrevCRC)
	le.PutUint64(b[16:], h.Generation)
	le.PutUint64(b[24:], h.Group)
	le.PutUint64(b[32:], h.Synced)
	crc := crc32.Checksum(b[:44], castagnoli)
	le.PutUint32(b[44:], crc)
	return crc
}

// decodeHeader decodes and checks a header alone.
func decodeHeader(b []byte) (header, error) {
	le := binary.LittleEndian
	if len(b) < headerSize || le.Uint32(b) != groupMagic {
		return header{}, errNoGroup
	}
	h := header{
		Length: le.Uint32(b[4:]), BodyCRC: le.Uint32(b[8:]), PrevCRC: le.Uint32(b[12:]),
		Generation: le.Uint64(b[16:]), Group: le.Uint64(b[24:]), Synced: le.Uint64(b[32:]),
		CRC: le.Uint32(b[44:]),
	}
	if got := crc32.Checksum(b[:44], castagnoli); got != h.CRC {
		return header{}, fmt.Errorf("%w: header checksum %08x, computed %08x", errNoGroup, h.CRC, got)
	}
	if h.Synced >= h.Group {
		return header{}, fmt.Errorf("%w: impossible header", errNoGroup)
	}
	return h, nil
}

// DecodeGroup decodes and checks the first group of b. The body aliases b; n is the earliest offset of the next group.
func DecodeGroup(b []byte) (h header, body []byte, n int, err error) {
	if h, err = decodeHeader(b); err != nil {
		return header{}, nil, 0, err
	}
	end := headerSize + int(h.Length)
	if end > len(b) {
		return h, nil, 0, fmt.Errorf("%w: group %d is cut short", errNoGroup, h.Group)
	}
	body = b[headerSize:end:end]
	if got := crc32.Checksum(body, castagnoli); got != h.BodyCRC {
		return h, nil, 0, fmt.Errorf("%w: group %d: body checksum %08x, computed %08x", errNoGroup, h.Group, h.BodyCRC, got)
	}
	return h, body, alignUp(end, Align), nil
}

func alignUp(n, unit int) int { return (n + unit - 1) / unit * unit }
