package queue

import "bytes"

// fieldScanner iterates over a JSON object whose values are strings or scalars without escapes, faster than encoding/json.
type fieldScanner struct {
	Name  []byte // of the current field
	Value []byte // its JSON text

	rest                 []byte
	began, ended, failed bool
}

// ScanFields returns an iterator over an object.
func ScanFields(object []byte) fieldScanner {
	f := fieldScanner{rest: object}
	f.failed = bytes.IndexByte(object, '\\') >= 0 || !f.take('{')
	return f
}

// Next moves to the next field. False: the object ends, or does not have the usual form.
func (f *fieldScanner) Next() bool {
	if f.failed || f.ended {
		return false
	}
	if f.take('}') {
		f.space()
		f.ended = len(f.rest) == 0
		return false
	}
	f.failed = f.began && !f.take(',') || !f.take('"') || !f.readName() || !f.take(':') || !f.readValue()
	f.began = true
	return !f.failed
}

// Complete reports whether the whole object has the usual form. Call it when Next has returned false.
func (f *fieldScanner) Complete() bool { return f.ended && !f.failed }

func (f *fieldScanner) space() {
	for len(f.rest) > 0 && (f.rest[0] == ' ' || f.rest[0] == '\t' || f.rest[0] == '\n' || f.rest[0] == '\r') {
		f.rest = f.rest[1:]
	}
}

// take skips white space and, if it comes next, the byte.
func (f *fieldScanner) take(c byte) bool {
	f.space()
	if len(f.rest) == 0 || f.rest[0] != c {
		return false
	}
	f.rest = f.rest[1:]
	return true
}

// readName reads the rest of a name, after its first quote.
func (f *fieldScanner) readName() bool {
	n := bytes.IndexByte(f.rest, '"')
	if n < 0 {
		return false
	}
	f.Name, f.rest = f.rest[:n], f.rest[n+1:]
	return true
}

func (f *fieldScanner) readValue() bool {
	f.space()
	n := 0
	if len(f.rest) > 0 && f.rest[0] == '"' {
		n = bytes.IndexByte(f.rest[1:], '"') + 2
		if n == 1 {
			return false
		}
	} else {
		for n < len(f.rest) && isScalar(f.rest[n]) {
			n++
		}
	}
	f.Value, f.rest = f.rest[:n], f.rest[n:]
	return n > 0
}

func isScalar(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || c == '-' || c == '+' || c == '.' || c == 'E'
}
