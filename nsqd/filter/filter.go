package filter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"github.com/lockstepmq/lockstep/nsqd/queue"
)

const (
	// maxText bounds the text of a filter in bytes.
	maxText = 512
	// maxValue bounds the values that a filter reads in bytes.
	maxValue = 1024
	// maxProgram bounds the instructions of a regular expression. A match takes at most maxValue × maxProgram steps.
	maxProgram = 200
	// maxStars bounds the runs of a glob.
	maxStars = 8
)

// TagHeader is the header with the tag of a message, as clients of the replicated fork of NSQ set it.
const TagHeader = "##client_dispatch_tag"

const (
	tagPrefix    = "tag"
	headerPrefix = "header:"
)

// Filter is one condition on one header.
type Filter struct {
	text     string
	name     headerName
	value    string
	kind     kind
	opposite bool
	re       *regexp.Regexp
}

type kind byte

// The byte before the equals sign.
const (
	equals  kind = '='
	prefix  kind = '^'
	glob    kind = '*'
	regular kind = '~'
)

// Parse reads the text of a filter. The text "" means no filter; for it Parse returns nil.
func Parse(text string) (*Filter, error) {
	if text == "" {
		return nil, nil
	}
	f := &Filter{text: text}
	if len(text) > maxText {
		return nil, fmt.Errorf("filter: %d bytes, at most %d", len(text), maxText)
	}
	if !utf8.ValidString(text) {
		return nil, errors.New("filter: the text is not UTF-8")
	}
	rest, opposite := strings.CutPrefix(text, "!")
	f.opposite = opposite
	left, value, ok := strings.Cut(rest, "=")
	if !ok || left == "" {
		return nil, fmt.Errorf("filter: %q has no condition: write tag=VALUE or header:NAME=VALUE", text)
	}
	f.kind, f.value = equals, value
	switch last := kind(left[len(left)-1]); last {
	case prefix, glob, regular:
		f.kind, left = last, left[:len(left)-1]
	}
	name, isHeader := strings.CutPrefix(left, headerPrefix)
	switch {
	case left == tagPrefix:
		f.name = nameOf(TagHeader)
	case isHeader && name != "":
		f.name = nameOf(name)
	default:
		return nil, fmt.Errorf("filter: %q names neither tag nor header:NAME", text)
	}
	return f, f.compile()
}

func (f *Filter) compile() (err error) {
	switch f.kind {
	case equals:
		return nil
	case prefix:
		if f.value == "" {
			return errors.New("filter: the prefix is empty")
		}
	case glob:
		if n := strings.Count(f.value, "*"); n > maxStars {
			return fmt.Errorf("filter: the glob has %d wildcards *, at most %d", n, maxStars)
		}
	case regular:
		parsed, err := syntax.Parse(f.value, syntax.Perl)
		if err != nil {
			return fmt.Errorf("filter: the regular expression cannot be read: %w", err)
		}
		program, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			return fmt.Errorf("filter: the regular expression cannot be compiled: %w", err)
		}
		if n := len(program.Inst); n > maxProgram {
			return fmt.Errorf("filter: the regular expression has %d instructions, at most %d", n, maxProgram)
		}
		if f.re, err = regexp.Compile(f.value); err != nil {
			return fmt.Errorf("filter: the regular expression cannot be compiled: %w", err)
		}
	}
	return nil
}

// String is the text that Parse has read.
func (f *Filter) String() string {
	if f == nil {
		return ""
	}
	return f.text
}

// Match reports whether the filter accepts a message with this header. It allocates only for escapes.
func (f *Filter) Match(header []byte) bool {
	return f.meets(header) != f.opposite
}

// meets reports whether the condition holds, ignoring opposite.
func (f *Filter) meets(header []byte) bool {
	value, ok := f.name.Value(header)
	if !ok || len(value) > maxValue {
		return false
	}
	switch f.kind {
	case prefix:
		return bytes.HasPrefix(value, []byte(f.value))
	case glob:
		return matchGlob(f.value, value)
	case regular:
		return f.re.Match(value)
	}
	return string(value) == f.value
}

// matchGlob matches a pattern of *, ? and plain characters. After a mismatch only the last * is extended by one
// character, so the cost is at most the product of the lengths.
func matchGlob(pattern string, value []byte) bool {
	p, v, star, after := 0, 0, -1, 0
	for v < len(value) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, after = p, v
			p++
		case p < len(pattern) && pattern[p] == '?':
			_, n := utf8.DecodeRune(value[v:])
			p, v = p+1, v+n
		case p < len(pattern) && pattern[p] == value[v]:
			p, v = p+1, v+1
		case star >= 0:
			_, n := utf8.DecodeRune(value[after:])
			after += n
			p, v = star+1, after
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// HeaderOnlyChannel is the header of a message for one channel only. A dead letter that is published
// again to its old topic has it, so that only the channel in which the message failed receives it.
const HeaderOnlyChannel = "##only_channel"

var onlyChannel = nameOf(HeaderOnlyChannel)

// Selection decides which of the messages that it reads are for a channel. Equal selections decide equally.
type Selection struct {
	Channel string
	Filter  *Filter // nil: none
}

// Accepts reports whether a message with this header, a JSON object or empty, is for the channel.
func (s Selection) Accepts(header []byte) bool {
	if only, ok := onlyChannel.Value(header); ok && string(only) != s.Channel {
		return false
	}
	return s.Filter == nil || s.Filter.Match(header)
}

type headerName struct {
	name   string
	quoted []byte // its only form in JSON without escapes; nil: it may have several forms
}

func nameOf(name string) headerName {
	n := headerName{name: name}
	if plain([]byte(name)) {
		n.quoted = []byte(`"` + name + `"`)
	}
	return n
}

// In reports whether a header may contain the name. False, the common case, is certain and needs no parsing.
func (n headerName) In(header []byte) bool {
	return len(header) > 0 && (n.quoted == nil || bytes.Contains(header, n.quoted) || bytes.IndexByte(header, '\\') >= 0)
}

// Value returns the value of the name in a header, a JSON object or empty. False: the header does not have the name, or
// its value is not a string. If a name is repeated, the last one counts, as in encoding/json. encoding/json itself is
// used only for objects with escapes, because a channel that delivers one message in a million reads all of them.
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

// plain reports whether JSON represents the text unchanged and has only one way to write it without escapes.
func plain(text []byte) bool {
	for _, b := range text {
		if b < ' ' || b == '\\' || b == '"' || b >= 0x80 {
			return false
		}
	}
	return true
}
