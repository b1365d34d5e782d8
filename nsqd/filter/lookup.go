package filter

import (
	"bytes"
	"encoding/json"
)

// Name is the name of a header.
type Name struct {
	name   string
	quoted []byte // as JSON writes it; nil: JSON may write it in several ways
}

// NameOf prepares a name.
func NameOf(name string) Name {
	n := Name{name: name}
	if plain([]byte(name)) {
		n.quoted = []byte(`"` + name + `"`)
	}
	return n
}

// In reports whether a header may have the name. False, the common case, is certain and needs no parsing.
func (n Name) In(header []byte) bool {
	return len(header) > 0 && (n.quoted == nil || bytes.Contains(header, n.quoted) || bytes.IndexByte(header, '\\') >= 0)
}

// Value returns the value of the name in a header, a JSON object or empty. False: the header does not have
// the name, or its value is no string. If the name is repeated, its last value counts, as in encoding/json.
// Objects of plain strings, numbers and literals are scanned in place, because a channel that delivers one
// message in a million reads all of them. Others are decoded.
func (n Name) Value(header []byte) (value []byte, ok bool) {
	if !n.In(header) {
		return nil, false
	}
	s := scanner{rest: header}
	value, ok, fits := s.find(n.name)
	if fits {
		return value, ok
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(header, &fields) != nil {
		return nil, false
	}
	var text *string
	if json.Unmarshal(fields[n.name], &text) != nil || text == nil {
		return nil, false
	}
	return []byte(*text), true
}

// scanner reads a JSON object from its beginning.
type scanner struct{ rest []byte }

// find searches for a name. fits is false if the scanner does not support the form of the object.
func (s *scanner) find(name string) (value []byte, ok, fits bool) {
	if !s.take('{') {
		return nil, false, false
	}
	if s.take('}') {
		return nil, false, s.end()
	}
	for {
		key, fits := s.text()
		if !fits || !s.take(':') {
			return nil, false, false
		}
		found, isText, fits := s.value()
		if !fits {
			return nil, false, false
		}
		if string(key) == name {
			value, ok = found, isText
		}
		if s.take('}') {
			return value, ok, s.end()
		}
		if !s.take(',') {
			return nil, false, false
		}
	}
}

// end reports whether nothing follows but white space.
func (s *scanner) end() bool {
	s.space()
	return len(s.rest) == 0
}

func (s *scanner) space() {
	for len(s.rest) > 0 && (s.rest[0] == ' ' || s.rest[0] == '\t' || s.rest[0] == '\n' || s.rest[0] == '\r') {
		s.rest = s.rest[1:]
	}
}

// take skips white space and, if it comes next, the byte.
func (s *scanner) take(b byte) bool {
	s.space()
	if len(s.rest) == 0 || s.rest[0] != b {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// text reads a string without escapes.
func (s *scanner) text() (text []byte, fits bool) {
	if !s.take('"') {
		return nil, false
	}
	n := bytes.IndexByte(s.rest, '"')
	if n < 0 || !plain(s.rest[:n]) {
		return nil, false
	}
	text, s.rest = s.rest[:n], s.rest[n+1:]
	return text, true
}

// value reads a string, a number or a literal.
func (s *scanner) value() (value []byte, isText, fits bool) {
	s.space()
	if len(s.rest) > 0 && s.rest[0] == '"' {
		value, fits = s.text()
		return value, true, fits
	}
	n := 0
	for n < len(s.rest) && isScalar(s.rest[n]) {
		n++
	}
	s.rest = s.rest[n:]
	return nil, false, n > 0
}

// isScalar reports whether the byte belongs to a number, true, false or null.
func isScalar(b byte) bool {
	return '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || b == '-' || b == '+' || b == '.' || b == 'E'
}

// plain reports whether JSON writes the text as it is, in only one way without escapes.
func plain(text []byte) bool {
	for _, b := range text {
		if b < ' ' || b == '\\' || b == '"' || b >= 0x80 {
			return false
		}
	}
	return true
}
