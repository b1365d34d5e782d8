package queue

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Headers that describe a put, or one attempt of it, and not the message.
const (
	HeaderKey    = "##key"       // chooses the partition
	HeaderTrace  = "##trace_id"  // requests an answer with the position of the message
	HeaderParent = "traceparent" // W3C trace context: different for each attempt
	headerState  = "tracestate"  // W3C, accompanies HeaderParent
)

// IdentityOfContent is the identity of a message of a topic that recognises messages by their content. It covers
// everything that decides whether a consumer receives the message: the body, the key that chooses the partition (nil:
// the key in the header), and the headers (##only_channel, tags, all headers that filters read, the time to live), in
// any order. Otherwise a message for another consumer would count as a repeat and be lost. It does not cover the delay,
// which is an absolute time here and differs between attempts, nor the trace, which identifies one attempt.
func IdentityOfContent(key, header, body []byte) (x Identity) {
	var head [9]byte // flags and lengths, so that different messages never have equal bytes
	if fields, ok := fieldsOf(header); ok {
		own, rest := contentHeader(fields)
		if header = rest; key == nil {
			key = own
		}
	} else if len(header) > 0 {
		head[0] |= contentUnread
	}
	if key != nil {
		head[0] |= contentKey
	}
	binary.LittleEndian.PutUint32(head[1:], uint32(len(key)))
	binary.LittleEndian.PutUint32(head[5:], uint32(len(header)))
	h := sha256.New()
	for _, b := range [][]byte{[]byte(domainContent), head[:], key, header, body} {
		_, _ = h.Write(b) // never fails: a hash
	}
	var sum [sha256.Size]byte
	copy(x[:], h.Sum(sum[:0]))
	return x
}

// Flags of a content.
const (
	contentKey    = 1 // it has a key
	contentUnread = 2 // its header cannot be parsed, and is compared byte by byte
)

// field is one name of a header with the text of its value.
type field struct{ name, value []byte }

// contentHeader returns the key in a header, or nil, and an encoding of the rest in a fixed order.
func contentHeader(fields []field) (key, rest []byte) {
	slices.SortStableFunc(fields, func(a, b field) int { return bytes.Compare(a.name, b.name) })
	for _, f := range fields {
		switch string(f.name) {
		case HeaderTrace, HeaderParent, headerState:
			continue
		case HeaderKey:
			var text *string
			if json.Unmarshal(f.value, &text) == nil && text != nil {
				key = []byte(*text) // an empty key is also a key
				continue
			}
		}
		for _, b := range [][]byte{f.name, f.value} {
			rest = binary.LittleEndian.AppendUint32(rest, uint32(len(b)))
			rest = append(rest, b...)
		}
	}
	return key, rest
}

func fieldsOf(header []byte) (fields []field, ok bool) {
	if len(header) == 0 {
		return nil, false
	}
	s, valid := ScanFields(header), true
	for s.Next() {
		fields = append(fields, field{s.Name, s.Value})
		valid = valid && utf8.Valid(s.Name)
	}
	if s.Complete() && valid {
		return fields, true
	}
	return anyFields(header)
}

// anyFields parses any object, unless a name is not valid UTF-8: the decoder could make two names equal.
func anyFields(header []byte) (fields []field, ok bool) {
	d := json.NewDecoder(bytes.NewReader(header))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	for d.More() {
		t, err := d.Token()
		name, text := t.(string)
		var value json.RawMessage
		if err != nil || !text || strings.ContainsRune(name, utf8.RuneError) || d.Decode(&value) != nil {
			return nil, false
		}
		fields = append(fields, field{[]byte(name), value})
	}
	if _, err := d.Token(); err != nil {
		return nil, false
	}
	_, err := d.Token()
	return fields, errors.Is(err, io.EOF)
}
