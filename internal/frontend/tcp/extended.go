package tcp

import (
	"encoding/binary"
	"strconv"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// The extensions of the replicated fork of NSQ that this broker supports: SUB_ORDERED, SUB_ADVANCED, PUB_EXT, MPUB_EXT,
// PUB_TRACE, MPUB_TRACE, and "extend_support" in IDENTIFY. A client that uses none of them receives stock frames. The
// kind of the header that follows the id in an extended message:
const (
	extNone = 0
	extJSON = 4
)

// format selects the encoding of messages for a client; it is set under output.mu.
type format struct {
	extended   bool // "extend_support": a header follows the id
	positioned bool // SUB_ADVANCED, SUB_ORDERED: position and size come before the body
	fenced     bool // SUB_ORDERED: the header includes the fencing token
}

// extendedLocked writes a message with the extensions of the client between its id and its body.
func (o *output) extendedLocked(d *api.Delivery) error {
	var extra []byte
	if o.format.extended {
		extra = appendExtension(extra, d, o.format.fenced)
	}
	if o.format.positioned { // the fork has a byte offset and a size on disk here
		extra = binary.BigEndian.AppendUint64(extra, uint64(d.Message.Seq))
		extra = binary.BigEndian.AppendUint32(extra, uint32(len(d.Message.Body)))
	}
	h := o.headLocked(d, len(extra))
	if err := o.writeLocked(h, extra); err != nil {
		return err
	}
	return o.writeLocked(nil, d.Message.Body)
}

// appendExtension appends the kind of the header, its length and the header.
func appendExtension(b []byte, d *api.Delivery, fenced bool) []byte {
	header := d.Message.Header
	if d.Message.Trace != 0 {
		header = withField(header, headerTrace, strconv.Quote(strconv.FormatUint(d.Message.Trace, 10)))
	}
	if fenced { // it only grows: external storage can refuse writes with an older one
		header = withField(header, headerEpoch, strconv.FormatUint(uint64(d.Epoch), 10))
	}
	if len(header) == 0 || len(header) > queue.MaxMessageHeader {
		return append(b, extNone)
	}
	b = append(b, extJSON)
	b = binary.BigEndian.AppendUint16(b, uint16(len(header)))
	return append(b, header...)
}

// withField inserts a field before the fields of a JSON object.
func withField(header []byte, name, value string) []byte {
	b := append([]byte(`{"`+name+`":`), value...)
	if len(header) < 2 || header[0] != '{' {
		return append(b, '}')
	}
	rest := header[1:]
	if i := First(rest); i < len(rest) && rest[i] != '}' {
		b = append(b, ',')
	}
	return append(b, rest...)
}
