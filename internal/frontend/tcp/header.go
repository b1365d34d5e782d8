package tcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// The headers of PUB_EXT that this broker interprets.
const (
	headerKey   = queue.HeaderKey
	headerTrace = queue.HeaderTrace // a decimal
	headerEpoch = "##epoch"         // reserved for the broker, see withField
	headerOnly  = "##only_channel"  // the only channel that receives the message
)

// header is the part of a message's header that this broker interprets. The slices may alias its bytes.
type header struct {
	key      []byte // nil: none
	id       []byte // nil: none
	reserved string // a name that requires the right to administer the topic; "": none
	sequence uint64
	numbered bool // there is a sequence
	trace    uint64
	traced   bool // there is a trace id
}

func (x *item) readHeader(verb string) error {
	if len(x.Header) == 0 {
		return nil
	}
	h, ok := flatHeader(x.Header)
	if !ok {
		var err error
		if h, err = anyHeader(verb, x.Header); err != nil {
			return err
		}
	}
	x.reserved, x.seq, x.numbered = h.reserved, h.sequence, h.numbered
	if h.key != nil {
		x.key = append([]byte{}, h.key...) // an empty key is a key
	}
	if h.id != nil {
		x.Identity = queue.IdentityOf(h.id)
	}
	if h.traced {
		x.trace = &trace{h.trace, len(x.Body)}
	}
	return nil
}

func anyHeader(verb string, b []byte) (h header, err error) {
	var fields map[string]any
	if !utf8.Valid(b) || json.Unmarshal(b, &fields) != nil || fields == nil {
		return h, fatal(codeInvalidHeader, "%s header is not a JSON object", verb)
	}
	for name := range fields {
		if err := api.CheckHeaderName(name); err != nil {
			return h, fatal(codeInvalidHeader, "%s %s", verb, err)
		}
		if api.TakesAdminister(name) && (h.reserved == "" || name < h.reserved) { // if there are several, the result does not depend on their order
			h.reserved = name
		}
	}
	if err := h.readNamed(verb, fields); err != nil {
		return h, err
	}
	if err := h.readSequence(verb, fields); err != nil {
		return h, err
	}
	if given, ok := fields[headerTrace]; ok {
		text, _ := given.(string)
		if h.trace, err = strconv.ParseUint(text, 10, 64); err != nil {
			return h, fatal(codeInvalidTrace, "%s %s must be a decimal in a string", verb, headerTrace)
		}
		h.traced = true
	}
	return h, nil
}

// readNamed checks the fields that the broker interprets. Otherwise an unreadable field would be ignored, and the
// answer would be OK.
func (h *header) readNamed(verb string, fields map[string]any) error {
	for _, name := range []string{headerKey, headerOnly, queue.HeaderID} {
		given, there := fields[name]
		text, ok := given.(string)
		if there && !ok {
			return fatal(codeInvalidHeader, "%s %s must be a string", verb, name)
		}
		if there && name == headerKey {
			h.key = []byte(text)
		}
		if there && name == queue.HeaderID {
			if !queue.ValidID(text) {
				return fatal(codeInvalidHeader, "%s %s must be 1 to %d bytes", verb, name, queue.MaxIDBytes)
			}
			h.id = []byte(text)
		}
	}
	if given, there := fields[queue.HeaderTTL]; there {
		ms, ok := given.(float64)
		if !ok || ms < 1 || ms > queue.MaxTTLMS || ms != math.Trunc(ms) {
			return fatal(codeInvalidHeader, "%s %s must be a number of milliseconds, 1 to %d", verb, queue.HeaderTTL, int64(queue.MaxTTLMS))
		}
	}
	return nil
}

// readSequence reads ##seq. Its refusals leave the connection open: a pipeline continues with the following puts.
func (h *header) readSequence(verb string, fields map[string]any) error {
	given, there := fields[queue.HeaderSequence]
	if !there {
		return nil
	}
	n, ok := given.(float64)
	if !ok || n < 0 || n > queue.MaxSequence || n != math.Trunc(n) {
		return refusal(codeInvalidHeader, "%s %s must be an integer, 0 to %d", verb, queue.HeaderSequence, int64(queue.MaxSequence))
	}
	if _, both := fields[queue.HeaderID]; both {
		return refusal(codeInvalidHeader, "%s a message has %s or %s, not both", verb, queue.HeaderID, queue.HeaderSequence)
	}
	h.sequence, h.numbered = uint64(n), true
	return nil
}

// flatHeader reads a header in its usual form without encoding/json, which costs more than the rest of the command. ok
// is false for any other header, which anyHeader then reads.
func flatHeader(b []byte) (h header, ok bool) {
	s := scanner{rest: b}
	if !s.next('{') {
		return h, false
	}
	beyond := false // a value has bytes beyond ASCII
	for first := true; !s.next('}'); first = false {
		if !first && !s.next(',') || !s.next('"') {
			return h, false
		}
		name, ascii, ok := s.text()
		if !ok || !ascii || len(name) == 0 || len(name) > api.MaxHeaderName || !s.next(':') {
			return h, false
		}
		reserved := bytes.HasPrefix(name, reservedHeaders)
		if s.next('"') {
			value, ascii, ok := s.text()
			if !ok || reserved && !h.takeText(name, value) {
				return h, false
			}
			beyond = beyond || !ascii
		} else if n, ok := s.integer(); !ok || reserved && !h.takeInteger(name, n) {
			return h, false
		}
	}
	s.space()
	return h, len(s.rest) == 0 && !(h.numbered && h.id != nil) && (!beyond || utf8.Valid(b))
}

var reservedHeaders = []byte(api.ReservedHeaders)

// takeText stores a string with a reserved name. If a name occurs twice, the later value counts, as in encoding/json.
func (h *header) takeText(name, value []byte) bool {
	switch string(name) {
	case headerKey:
		h.key = value
	case queue.HeaderID:
		h.id = value
		return len(value) > 0 && len(value) <= queue.MaxIDBytes
	case headerTrace:
		n, err := strconv.ParseUint(string(value), 10, 64)
		h.trace, h.traced = n, true
		return err == nil
	case queue.HeaderTTL, queue.HeaderSequence:
		return false
	case headerOnly:
		h.reserved = headerOnly
	default:
		return !api.TakesAdminister(string(name)) && api.CheckHeaderName(string(name)) == nil
	}
	return true
}

func (h *header) takeInteger(name []byte, n uint64) bool {
	switch string(name) {
	case queue.HeaderSequence: // MaxSequence has 16 digits
		h.sequence, h.numbered = n, true
		return true
	case queue.HeaderTTL:
		return n >= 1 && n <= queue.MaxTTLMS
	}
	return false
}

// scanner reads the usual form of JSON objects without encoding/json: ASCII names without escapes, strings without
// escapes, and integers of at most 15 digits. It refuses nothing: its caller passes any other form to encoding/json.
type scanner struct{ rest []byte }

func (s *scanner) space() { s.rest = s.rest[firstByte(s.rest):] }

// next consumes c, and the white space before it, if c comes next.
func (s *scanner) next(c byte) bool {
	s.space()
	if len(s.rest) == 0 || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// text consumes a string after its opening quote.
func (s *scanner) text() (text []byte, ascii, ok bool) {
	all := byte(0)
	for i, c := range s.rest {
		if c == '"' {
			text, s.rest = s.rest[:i:i], s.rest[i+1:]
			return text, all < utf8.RuneSelf, true
		}
		if c < ' ' || c == '\\' {
			break
		}
		all |= c
	}
	return nil, false, false
}

// integer consumes a decimal of at most 15 digits.
func (s *scanner) integer() (n uint64, ok bool) {
	i := 0
	for ; i < len(s.rest) && '0' <= s.rest[i] && s.rest[i] <= '9'; i++ {
		n = 10*n + uint64(s.rest[i]-'0')
	}
	if i == 0 || i > 15 || i > 1 && s.rest[0] == '0' {
		return 0, false
	}
	s.rest = s.rest[i:]
	return n, true
}

// firstByte returns the index of the first byte that is not JSON white space.
func firstByte(b []byte) int {
	i := 0
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// name sets the producer_id from an IDENTIFY. A later IDENTIFY without one does not change it. Together with ##seq it
// is equivalent to an id (docs/adr/0014).
func (c *conn) name(id *identity) error {
	if id.ProducerID == "" {
		return nil
	}
	if !queue.ValidProducer(id.ProducerID) {
		return fatal(codeBadBody, "IDENTIFY producer_id must be 1 to %d bytes of UTF-8", queue.MaxProducerBytes)
	}
	c.producer = id.ProducerID
	return nil
}

// giveIdentity gives a numbered message the identity of its producer and number.
func (x *item) giveIdentity(verb, producer string) error {
	if !x.numbered {
		return nil
	}
	if producer == "" {
		return refusal(codeInvalidHeader, "%s %s requires a producer_id in IDENTIFY", verb, queue.HeaderSequence)
	}
	x.Identity = queue.IdentityOfSequence(producer, x.seq)
	return nil
}

// ending is an error in the middle of a body. It ends the connection, because the next command cannot be found.
func ending(err error) error {
	if cmd, ok := errors.AsType[*commandError](err); ok && cmd.open {
		return &commandError{text: cmd.text}
	}
	return err
}
