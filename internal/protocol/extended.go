package protocol

import (
	"encoding/binary"
	"strconv"

	"github.com/lockstepmq/lockstep/internal/edge"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// The extensions of the replicated fork of NSQ that this broker speaks:
// SUB_ORDERED, SUB_ADVANCED, PUB_EXT, MPUB_EXT, PUB_TRACE, MPUB_TRACE, and
// "extend_support" in IDENTIFY. A client that uses none of them sees stock
// frames. What follows the id in an extended message:
const (
	extNone = 0
	extJSON = 4
)

// format is how messages are written to a client; set under output.mu.
type format struct {
	extended bool // "extend_support": a header follows the id
	placed   bool // SUB_ADVANCED, SUB_ORDERED: place and size come before the body
	fenced   bool // SUB_ORDERED: the header has the fencing token
}

// extendedLocked writes a message with what the client asked for between the id
// and the body.
func (o *output) extendedLocked(d *edge.Delivery) error {
	var extra []byte
	if o.format.extended {
		extra = appendExtension(extra, d, o.format.fenced)
	}
	if o.format.placed { // where the fork has a byte offset and a size on disk
		extra = binary.BigEndian.AppendUint64(extra, uint64(d.Message.Seq))
		extra = binary.BigEndian.AppendUint32(extra, uint32(len(d.Message.Body)))
	}
	h := o.headLocked(d, len(extra))
	if err := o.writeLocked(h, extra); err != nil {
		return err
	}
	return o.writeLocked(nil, d.Message.Body)
}

// appendExtension writes the kind of the header, its length and the header.
func appendExtension(b []byte, d *edge.Delivery, fenced bool) []byte {
	header := d.Message.Header
	if d.Message.Trace != 0 {
		header = withField(header, headerTrace, strconv.Quote(strconv.FormatUint(d.Message.Trace, 10)))
	}
	if fenced { // it only grows: who keeps state outside can refuse writes with an older one
		header = withField(header, headerEpoch, strconv.FormatUint(uint64(d.Epoch), 10))
	}
	if len(header) == 0 || len(header) > queue.MaxMessageHeader {
		return append(b, extNone)
	}
	b = append(b, extJSON)
	b = binary.BigEndian.AppendUint16(b, uint16(len(header)))
	return append(b, header...)
}

// withField puts a field in front of those of a JSON object.
func withField(header []byte, name, value string) []byte {
	b := append([]byte(`{"`+name+`":`), value...)
	if len(header) < 2 || header[0] != '{' {
		return append(b, '}')
	}
	rest := header[1:]
	if i := firstOf(rest); i < len(rest) && rest[i] != '}' {
		b = append(b, ',')
	}
	return append(b, rest...)
}

// firstOf passes over the white space that JSON allows.
func firstOf(b []byte) int {
	i := 0
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}
