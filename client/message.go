package client

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Headers are the headers of a message. The methods are those of a carrier of OpenTelemetry's
// propagators.
type Headers map[string]string

// Get returns a header, "" without one.
func (h Headers) Get(key string) string { return h[key] }

// Set sets a header.
func (h Headers) Set(key, value string) { h[key] = value }

// Keys lists the names of the headers, sorted.
func (h Headers) Keys() []string { return slices.Sorted(maps.Keys(h)) }

// Message is a message to publish. The producer does not copy the body: it must not change
// before the put is answered.
type Message struct {
	Body []byte // at least one byte
	// Key selects the partition: messages of one key are in one partition. "" = any.
	Key string
	// ID, 1 to 64 bytes of UTF-8, lets the brokers recognise the message when any producer
	// publishes it again: it is stored once within the topic's dedupe window. So the
	// producer repeats its put also when it is in doubt. "" = none. PublishAll of several
	// messages with IDs requires a Key, too.
	ID string
	// Headers travel with the message. Consumers that use the extended commands, such as
	// this client's, receive them; stock clients receive the body alone. Names beginning
	// with ## are reserved.
	Headers Headers
	// Delay is how long the message waits before its first delivery, in whole milliseconds. A
	// message with a Delay can have neither ID, Key, Headers nor TTL.
	Delay time.Duration
	// TTL is the time to live of the message, in whole milliseconds: after it no channel
	// delivers the message. 0 = the topic's limit.
	TTL time.Duration
}

// The names of the headers that brokers interpret.
const (
	reserved    = "##"
	headerKey   = "##key"
	headerID    = "##id"
	headerTTL   = "##ttl_ms"
	headerToken = "##epoch"
)

// maxHeader is the length of all headers of a message in their JSON form, in bytes.
const maxHeader = 1<<16 - 1

// maxID is the length of a message's ID in bytes.
const maxID = 64

// plain reports whether the message needs no extended command.
func (m *Message) plain() bool { return m.ID == "" && m.Key == "" && len(m.Headers) == 0 && m.TTL == 0 }

// check refuses a message that no broker would store as it is.
func (m *Message) check(topic string) error {
	switch {
	case !validName(topic):
		return invalid("publish", topic, "the topic's name is not valid")
	case len(m.Body) == 0:
		return invalid("publish", topic, "the body is empty")
	case m.Delay < 0 || m.TTL < 0:
		return invalid("publish", topic, "Delay and TTL are not negative")
	case m.Delay%time.Millisecond != 0 || m.TTL%time.Millisecond != 0:
		return invalid("publish", topic, "Delay and TTL are whole milliseconds")
	case m.Delay > 0 && !m.plain():
		return invalid("publish", topic, "a message with a Delay can have neither ID, Key, Headers nor TTL")
	case len(m.ID) > maxID || !utf8.ValidString(m.ID):
		return invalid("publish", topic, "ID is at most 64 bytes of UTF-8")
	}
	for name, value := range m.Headers {
		switch {
		case name == "" || strings.HasPrefix(name, reserved):
			return invalid("publish", topic, fmt.Sprintf("the header name %q is reserved", name))
		case !utf8.ValidString(name) || !utf8.ValidString(value):
			return invalid("publish", topic, fmt.Sprintf("the header %q is not UTF-8", name))
		}
	}
	if !utf8.ValidString(m.Key) {
		return invalid("publish", topic, "Key is not UTF-8")
	}
	return nil
}

// validName reports whether s may name a topic or a channel.
func validName(s string) bool {
	base := strings.TrimSuffix(s, "#ephemeral")
	return len(s) <= 64 && base != "" && strings.IndexFunc(base, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '.' || r == '_' || r == '-')
	}) < 0
}

// header encodes the headers as the JSON object of PUB_EXT.
func (m *Message) header(topic string) ([]byte, error) {
	fields := make(map[string]any, len(m.Headers)+3)
	for name, value := range m.Headers {
		fields[name] = value
	}
	if m.Key != "" {
		fields[headerKey] = m.Key
	}
	if m.ID != "" {
		fields[headerID] = m.ID
	}
	if m.TTL > 0 {
		fields[headerTTL] = m.TTL.Milliseconds()
	}
	b, err := json.Marshal(fields)
	if err != nil {
		return nil, invalid("publish", topic, err.Error())
	}
	if len(b) > maxHeader {
		return nil, &Error{Op: "publish", Topic: topic, Text: fmt.Sprintf("headers of %d bytes exceed %d", len(b), maxHeader), kinds: []error{ErrNotStored, ErrTooBig}}
	}
	return b, nil
}

// command is one put in the form of its command.
type command struct {
	line   string // the command line
	prefix []byte // the length and the header before the body
	bodies [][]byte
	named  bool // each message has an ID: a repeat stores nothing twice
}

// encodeOne selects the command of one message.
func encodeOne(topic string, m *Message) (command, error) {
	if err := m.check(topic); err != nil {
		return command{}, err
	}
	if m.plain() {
		line := "PUB " + topic + "\n"
		if m.Delay > 0 {
			line = fmt.Sprintf("DPUB %s %d\n", topic, m.Delay.Milliseconds())
		}
		return command{line: line, prefix: binary.BigEndian.AppendUint32(nil, uint32(len(m.Body))), bodies: [][]byte{m.Body}}, nil
	}
	h, err := m.header(topic)
	if err != nil {
		return command{}, err
	}
	b := binary.BigEndian.AppendUint32(make([]byte, 0, 6+len(h)), uint32(2+len(h)+len(m.Body)))
	b = binary.BigEndian.AppendUint16(b, uint16(len(h)))
	return command{line: "PUB_EXT " + topic + "\n", prefix: append(b, h...), bodies: [][]byte{m.Body}, named: m.ID != ""}, nil
}

// encodeAll selects the command of several messages that are stored as a whole or not at all.
func encodeAll(topic string, all []Message) (command, error) {
	if len(all) == 0 {
		return command{}, invalid("publish", topic, "there is no message")
	}
	extended := slices.ContainsFunc(all, func(m Message) bool { return !m.plain() })
	named := !slices.ContainsFunc(all, func(m Message) bool { return m.ID == "" })
	body := binary.BigEndian.AppendUint32(nil, uint32(len(all)))
	for i := range all {
		m := &all[i]
		switch err := m.check(topic); {
		case err != nil:
			return command{}, err
		case m.Delay > 0:
			return command{}, invalid("publish", topic, "PublishAll takes no Delay")
		case m.Key != all[0].Key:
			return command{}, invalid("publish", topic, "the messages of one PublishAll have the same Key: they are stored in one partition")
		case m.ID != "" && m.Key == "" && len(all) > 1:
			return command{}, invalid("publish", topic, "messages with IDs take a Key in one PublishAll: each alone would go to another partition")
		}
		if !extended {
			body = append(binary.BigEndian.AppendUint32(body, uint32(len(m.Body))), m.Body...)
			continue
		}
		h, err := m.header(topic)
		if err != nil {
			return command{}, err
		}
		body = binary.BigEndian.AppendUint32(body, uint32(2+len(h)+len(m.Body)))
		body = append(binary.BigEndian.AppendUint16(body, uint16(len(h))), h...)
		body = append(body, m.Body...)
	}
	line := "MPUB "
	if extended {
		line = "MPUB_EXT "
	}
	return command{line: line + topic + "\n", prefix: binary.BigEndian.AppendUint32(nil, uint32(len(body))), bodies: [][]byte{body}, named: named}, nil
}

// size is the length of the command in bytes.
func (c *command) size() int {
	n := len(c.line) + len(c.prefix)
	for _, b := range c.bodies {
		n += len(b)
	}
	return n
}

// appendTo appends the bytes of the command.
func (c *command) appendTo(b []byte) []byte {
	b = append(append(b, c.line...), c.prefix...)
	for _, body := range c.bodies {
		b = append(b, body...)
	}
	return b
}

// Delivery is a message that was received.
type Delivery struct {
	ID        string // 16 hex digits; stable over deliveries, leaders and brokers
	Topic     string
	Channel   string
	Body      []byte
	Headers   Headers // without the reserved names; nil = none
	Key       string
	MessageID string    // the ID that its producer gave it; "" = none
	Attempts  int       // counts from 1
	Published time.Time // by the broker's clock
	// Sequence is the place of the message in its partition.
	Sequence uint64
	// Token is the fencing token of an ordered channel: it never decreases from one owner of a
	// partition to the next. External storage must refuse a write whose token is lower than
	// the highest it has seen for the partition. 0 on unordered channels.
	Token uint64
}

// The forms of the header in a message frame.
const (
	formNone = 0
	formJSON = 4
)

// decodeDelivery reads a message frame of SUB_ADVANCED or SUB_ORDERED with extend_support: time,
// attempts, id, the form of the header, its length and the header, sequence, size, body.
func decodeDelivery(b []byte) (*Delivery, error) {
	const fixed = 8 + 2 + 16
	if len(b) < fixed+1+12 {
		return nil, fmt.Errorf("a message frame of %d bytes is too short", len(b))
	}
	d := &Delivery{
		Published: time.Unix(0, int64(binary.BigEndian.Uint64(b))),
		Attempts:  int(binary.BigEndian.Uint16(b[8:])),
		ID:        string(b[10:fixed]),
	}
	form, rest := b[fixed], b[fixed+1:]
	switch form {
	case formNone:
	case formJSON:
		n := int(binary.BigEndian.Uint16(rest))
		if len(rest) < 2+n+12 {
			return nil, fmt.Errorf("a message's header of %d bytes exceeds its frame", n)
		}
		if err := d.readHeader(rest[2 : 2+n]); err != nil {
			return nil, err
		}
		rest = rest[2+n:]
	default:
		return nil, fmt.Errorf("a message's header has the unknown form %d", form)
	}
	d.Sequence, d.Body = binary.BigEndian.Uint64(rest), rest[12:]
	if size := binary.BigEndian.Uint32(rest[8:]); int(size) != len(d.Body) {
		return nil, fmt.Errorf("a message's body has %d bytes, its frame says %d", len(d.Body), size)
	}
	return d, nil
}

// readHeader reads the JSON object. The value of another client's header that is not a string
// stays in its JSON form.
func (d *Delivery) readHeader(b []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		return fmt.Errorf("a message's header is no JSON object: %w", err)
	}
	for name, raw := range fields {
		value := string(raw)
		var text string
		if json.Unmarshal(raw, &text) == nil {
			value = text
		}
		switch {
		case name == headerKey:
			d.Key = value
		case name == headerID:
			d.MessageID = value
		case name == headerToken:
			if err := json.Unmarshal(raw, &d.Token); err != nil {
				return fmt.Errorf("a message's fencing token is not a number: %w", err)
			}
		case strings.HasPrefix(name, reserved):
		default:
			if d.Headers == nil {
				d.Headers = Headers{}
			}
			d.Headers[name] = value
		}
	}
	return nil
}
