package tcp

// A Scanner reads the usual form of JSON objects without encoding/json: ASCII names without escapes, strings without
// escapes, and integers of at most 15 digits. It refuses nothing: its caller asks encoding/json about any other form.

import "unicode/utf8"

// Scanner reads the JSON of Rest.
type Scanner struct{ Rest []byte }

// Space consumes white space.
func (s *Scanner) Space() { s.Rest = s.Rest[First(s.Rest):] }

// Next consumes c, and the white space before it, if c comes next.
func (s *Scanner) Next(c byte) bool {
	s.Space()
	if len(s.Rest) == 0 || s.Rest[0] != c {
		return false
	}
	s.Rest = s.Rest[1:]
	return true
}

// Text consumes a string behind its opening quote.
func (s *Scanner) Text() (text []byte, ascii, ok bool) {
	all := byte(0)
	for i, c := range s.Rest {
		if c == '"' {
			text, s.Rest = s.Rest[:i:i], s.Rest[i+1:]
			return text, all < utf8.RuneSelf, true
		}
		if c < ' ' || c == '\\' {
			break
		}
		all |= c
	}
	return nil, false, false
}

// Integer consumes a decimal of at most 15 digits.
func (s *Scanner) Integer() (n uint64, ok bool) {
	i := 0
	for ; i < len(s.Rest) && '0' <= s.Rest[i] && s.Rest[i] <= '9'; i++ {
		n = 10*n + uint64(s.Rest[i]-'0')
	}
	if i == 0 || i > 15 || i > 1 && s.Rest[0] == '0' {
		return 0, false
	}
	s.Rest = s.Rest[i:]
	return n, true
}

// First returns the index of the first byte that is no JSON white space.
func First(b []byte) int {
	i := 0
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}
