package protocol

import "bytes"

// decimal reads [0-9]*. Like stock NSQ it takes the empty string for 0 and
// wraps silently: a client that relies on neither sees no difference.
func decimal(b []byte) (n uint64, ok bool) {
	for _, d := range b {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = n*10 + uint64(d-'0')
	}
	return n, true
}

// splitParams cuts a line at every single space: two spaces in a row make an
// empty parameter. It appends to dst.
func splitParams(line []byte, dst [][]byte) [][]byte {
	for {
		i := bytes.IndexByte(line, ' ')
		if i < 0 {
			return append(dst, line)
		}
		dst = append(dst, line[:i:i])
		line = line[i+1:]
	}
}
