package tcp

import (
	"bytes"
	"math"
)

// decimal reads [0-9]*. Like stock NSQ it reads the empty string as 0. A number beyond 64 bits is the largest one, so
// that every limit refuses it or holds it; stock NSQ wraps, which makes 2^64 milliseconds none.
func decimal(b []byte) (n uint64, ok bool) {
	for _, d := range b {
		if d < '0' || d > '9' {
			return 0, false
		}
		if digit := uint64(d - '0'); n > (math.MaxUint64-digit)/10 {
			n = math.MaxUint64
		} else {
			n = n*10 + digit
		}
	}
	return n, true
}

// maxParams is more than any command has. Further parts of a line stay in the last one: a line of spaces would cost 24
// bytes for each of them, for as long as the connection stays.
const maxParams = 16

// splitParams splits a line at every single space and appends the parts to dst: two consecutive spaces make an empty
// parameter.
func splitParams(line []byte, dst [][]byte) [][]byte {
	for len(dst) < maxParams {
		i := bytes.IndexByte(line, ' ')
		if i < 0 {
			break
		}
		dst = append(dst, line[:i:i])
		line = line[i+1:]
	}
	return append(dst, line)
}
