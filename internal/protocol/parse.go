package protocol

import "bytes"

// maxNameLength bounds a topic's or channel's name, suffix included.
const maxNameLength = 64

const ephemeralSuffix = "#ephemeral"

// ValidName reports whether s may name a topic or a channel:
// [.a-zA-Z0-9_-]+(#ephemeral)? of at most 64 bytes.
func ValidName(s string) bool {
	if len(s) == 0 || len(s) > maxNameLength {
		return false
	}
	base := s
	if IsEphemeral(s) {
		base = s[:len(s)-len(ephemeralSuffix)]
	}
	for i := 0; i < len(base); i++ {
		if !nameByte(base[i]) {
			return false
		}
	}
	return len(base) > 0
}

// IsEphemeral reports whether the name ends in "#ephemeral".
func IsEphemeral(s string) bool {
	return len(s) >= len(ephemeralSuffix) && s[len(s)-len(ephemeralSuffix):] == ephemeralSuffix
}

func nameByte(b byte) bool {
	switch {
	case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9':
		return true
	}
	return b == '.' || b == '_' || b == '-'
}

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
