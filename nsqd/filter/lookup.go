package filter

import (
	"bytes"
	"encoding/json"

	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// headerName is the name of a header.
type headerName struct {
	name   string
	quoted []byte // as JSON writes it; nil: JSON may write it in several ways
}

// nameOf prepares a name.
func nameOf(name string) headerName {
	n := headerName{name: name}
	if plain([]byte(name)) {
		n.quoted = []byte(`"` + name + `"`)
	}
	return n
}

// In reports whether a header may have the name. False, the common case, is certain and needs no parsing.
func (n headerName) In(header []byte) bool {
	return len(header) > 0 && (n.quoted == nil || bytes.Contains(header, n.quoted) || bytes.IndexByte(header, '\\') >= 0)
}

// Value returns the value of the name in a header, a JSON object or empty. False: the header does not have
// the name, or its value is no string. If the name is repeated, its last value counts, as in encoding/json.
// Objects of plain strings, numbers and literals are scanned in place, because a channel that delivers one
// message in a million reads all of them. Others are decoded.
func (n headerName) Value(header []byte) (value []byte, ok bool) {
	if !n.In(header) {
		return nil, false
	}
	s, simple := queue.ScanFields(header), true
	for s.Next() {
		text, isText := bytes.CutPrefix(s.Value, quote)
		if isText {
			text = text[:len(text)-1]
			simple = simple && plain(text)
		}
		simple = simple && plain(s.Name)
		if string(s.Name) == n.name {
			value, ok = text, isText
		}
	}
	if s.Complete() && simple {
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

var quote = []byte{'"'}

// plain reports whether JSON writes the text as it is, in only one way without escapes.
func plain(text []byte) bool {
	for _, b := range text {
		if b < ' ' || b == '\\' || b == '"' || b >= 0x80 {
			return false
		}
	}
	return true
}
