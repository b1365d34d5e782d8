package queue

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Identity is the hash of a message's id, by which a leader recognises a message that is published again
// (docs/adr/0012): half a SHA-256. It is that long so that no client can find two ids with equal hashes, because the
// second message would be lost.
type Identity [16]byte

// The sources of identities. The identities of two sources are never equal.
const (
	domainID       = "id\x00"
	domainSequence = "seq\x00"
	domainPart     = "part\x00"
	domainContent  = "content\x00"
	domainCopy     = "copy\x00"
)

// IdentityOf is the identity of a message with an id.
func IdentityOf(id []byte) Identity { return identity(domainID, id) }

// IdentityOfSequence is the identity of a message that a producer numbered (docs/adr/0014).
func IdentityOfSequence(producer string, seq uint64) Identity {
	return identity(domainSequence, append(binary.LittleEndian.AppendUint64(nil, seq), producer...))
}

// Part is the identity of message n of a put whose messages share one id.
func (x Identity) Part(n int) Identity {
	return identity(domainPart, binary.LittleEndian.AppendUint32(x[:len(x):len(x)], uint32(n)))
}

// ByContent returns the put with an identity by content (content.go) for each message that has none. key is the put's
// key, or nil. If all messages have one, the put is returned without a copy.
func (d *Draft) ByContent(key []byte) Draft {
	if !d.LacksIdentities() {
		return *d
	}
	out := DraftBuilder{bytes: make([]byte, HeaderSize, len(d.Bytes)+int(d.Count)*len(Identity{}))}
	for _, encoded := range encodedMessages(d.Bytes[HeaderSize:]) {
		m, _ := decodeMessage(encoded[4:])
		if m.Identity == (Identity{}) {
			m.Identity = IdentityOfContent(key, m.Header, m.Body)
		}
		_ = out.AddMessage(m) // its header was accepted with this size before
	}
	return out.Draft(d.Request)
}

// LacksIdentities reports whether the put has no identity and some message has none either.
func (d *Draft) LacksIdentities() bool {
	if d.Control != 0 || d.HasPutIdentity() {
		return false
	}
	n := uint32(0)
	d.Identities(func(_ int, x Identity) {
		if x != (Identity{}) {
			n++
		}
	})
	return n < d.Count
}

// Source identifies a message that is published again elsewhere.
type Source struct {
	Topic     ident.TopicID
	Partition uint16
	Sequence  ident.Sequence
	Channel   string // from which, or for which, the message is copied; "": none
	ChannelID uint64 // of the channel from which it is copied; 0: none
	TimeNS    int64  // when it was published, if the topic may have lost it and reused its sequence; 0: unknown
}

// The reasons for which a message is published again. The texts are part of the identities.
const (
	CopyDeadLetter = "dead letter" // it failed too often in the channel
	CopyRedrive    = "redrive"     // a dead letter, back to the channel
	CopyOrigin     = "origin"      // import and mirror: the put that begins with it
)

// IdentityOfCopy is the identity of the copy of a message, by which a repeat of an interrupted copy is recognised.
func IdentityOfCopy(why string, of Source) Identity {
	b := append([]byte(why), 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(of.Topic))
	b = binary.LittleEndian.AppendUint16(b, of.Partition)
	b = binary.LittleEndian.AppendUint64(b, uint64(of.Sequence))
	b = append(b, of.Channel...)
	if of.ChannelID != 0 { // names contain no zero byte
		b = binary.LittleEndian.AppendUint64(append(b, 0), of.ChannelID)
	}
	if of.TimeNS != 0 {
		b = binary.LittleEndian.AppendUint64(append(b, 1), uint64(of.TimeNS))
	}
	return identity(domainCopy, b)
}

// HasPutIdentity reports whether one identity, in its first message, identifies the whole put.
func (d *Draft) HasPutIdentity() bool {
	return d.Identified && len(d.Bytes) > HeaderSize+4 && d.Bytes[HeaderSize+4]&messagePutIdentity != 0
}

func identity(domain string, b []byte) Identity {
	var buffer [len(domainPart) + MaxIDBytes]byte // large enough for ids; a longer source is allocated
	sum := sha256.Sum256(append(append(buffer[:0], domain...), b...))
	return Identity(sum[:len(Identity{})])
}

// Identities calls visit for each message of an Identified batch, in order, with its number.
func (b *Batch) Identities(visit func(n int, x Identity)) {
	if b.Identified {
		identities(b.Bytes[HeaderSize:], visit)
	}
}

// Identities does the same for a put. The bytes must come from a DraftBuilder, or be checked.
func (d *Draft) Identities(visit func(n int, x Identity)) {
	if d.Identified {
		identities(d.Bytes[HeaderSize:], visit)
	}
}

func identities(p []byte, visit func(n int, x Identity)) {
	for n, encoded := range encodedMessages(p) {
		m, _ := decodeMessage(encoded[4:])
		visit(n, m.Identity)
	}
}

// Keep returns the put, with its request id and only the messages for which keep is true, at least one.
func (d *Draft) Keep(keep func(n int) bool) Draft {
	out := DraftBuilder{bytes: make([]byte, HeaderSize, len(d.Bytes))}
	for n, encoded := range encodedMessages(d.Bytes[HeaderSize:]) {
		if keep(n) {
			out.bytes = append(out.bytes, encoded...)
			out.count++
			out.identified = out.identified || encoded[4]&messageIdentity != 0
		}
	}
	return out.Draft(d.Request)
}

// First is the identity of the first message; false without one.
func (d *Draft) First() (x Identity, ok bool) {
	if d.Identified {
		m, _ := decodeMessage(firstOf(d.Bytes[HeaderSize:]))
		x = m.Identity
	}
	return x, x != (Identity{})
}

// Clock is a time on the clock of a partition, in tenths of a second; 0: none. The clock counts how long the partition
// has had a leader since its first message with an identity, measured by the monotonic clocks of its leaders and never
// by a wall clock. So the difference between the current clock and a batch's clock is a lower bound of the batch's age.
type Clock uint32

// ClockTick is the unit of Clock in milliseconds.
const ClockTick = 100

// IdentityMark describes the messages with identities that a replica still recognises (the dedupe window). It is
// written periodically, for the next start. The zero value: the log never had such a message.
type IdentityMark struct {
	From    ident.Offset // the window has the identities of the batches from this offset on
	End     ident.Offset // the end of the log at the time of the mark, above 0
	ClockMS int64        // the clock of the partition at the time of the mark, in milliseconds
	// Forgotten is the clock of the newest message with an identity before From; 0 if there is none; or
	// ForgottenUnknown.
	Forgotten Clock
}

// ForgottenUnknown is above the clock of every message.
const ForgottenUnknown = Clock(math.MaxUint32)

// Cut is the mark after the log was cut at o.
func (m IdentityMark) Cut(o ident.Offset) IdentityMark {
	if m != (IdentityMark{}) {
		m.From, m.End = min(m.From, o), max(min(m.End, o), 1)
	}
	return m
}

// IdentifiedPut is a batch of the log whose messages have identities.
type IdentifiedPut struct {
	First      ident.Sequence
	At, End    ident.Offset
	Clock      Clock
	Identities []Identity // identities of the messages in order; a zero identity is never recognised
}

// HeaderID is the header with the id that the producer gave the message.
const HeaderID = "##id"

// MaxIDBytes bounds the id of a message.
const MaxIDBytes = 64

// ValidID reports whether a producer may give a message this id: 1 to 64 bytes of UTF-8.
func ValidID(id string) bool { return id != "" && len(id) <= MaxIDBytes && utf8.ValidString(id) }

// HeaderSequence is the header with the number that the producer gave the message, in place of an id.
const HeaderSequence = "##seq"

// MaxSequence is the largest such number. JSON libraries that use float64 would round larger ones.
const MaxSequence = 1<<53 - 1

// MaxProducerBytes bounds the name of a producer that numbers its messages.
const MaxProducerBytes = 32

// ValidProducer reports whether a name is valid: 1 to 32 bytes of UTF-8. U+FFFD is refused, because JSON decoders
// replace invalid bytes with it, so that two names could become one.
func ValidProducer(name string) bool {
	return name != "" && len(name) <= MaxProducerBytes && utf8.ValidString(name) && !strings.ContainsRune(name, utf8.RuneError)
}

// WithID adds the id to the header of a message: a JSON object, or none.
func WithID(header []byte, id string) []byte {
	value, _ := json.Marshal(id) // a string always does
	b := append([]byte(`{"`+HeaderID+`":`), value...)
	if len(header) <= len(`{}`) {
		return append(b, '}')
	}
	return append(append(b, ','), header[1:]...)
}
