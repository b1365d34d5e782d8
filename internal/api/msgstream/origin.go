package msgstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/lockstepmq/lockstep/internal/ident"
)

// Origin names a message of another cluster. Channel is the one channel that the copy is for; "" = all channels. TimeNS
// is when it was published (unix ns), 0 if unknown. A log that was restored from a backup may reuse a sequence; TimeNS
// then distinguishes the messages.
type Origin struct {
	Cluster   string // informational: the topic id alone identifies the topic
	TopicID   ident.TopicID
	Partition uint16
	Sequence  uint64
	Channel   string
	TimeNS    int64
}

// String is CLUSTER:TOPIC-ID:PARTITION:SEQUENCE, the id in hex, followed by @CHANNEL if it is for one channel. The time
// is a field of its own (headerOriginTime).
func (o Origin) String() string {
	text := fmt.Sprintf("%s:%016x:%d:%d", o.Cluster, uint64(o.TopicID), o.Partition, o.Sequence)
	if o.Channel != "" {
		text += "@" + o.Channel
	}
	return text
}

// parseOrigin reads what String has written. The name of a cluster may have colons.
func parseOrigin(text string) (o Origin, ok bool) {
	rest, tail, ok := cutLast(text)
	if !ok {
		return Origin{}, false
	}
	sequence, channel, _ := strings.Cut(tail, "@")
	rest, partition, _ := cutLast(rest)
	rest, topic, ok := cutLast(rest)
	if !ok {
		return Origin{}, false
	}
	n, err := strconv.ParseUint(sequence, 10, 64)
	p, err2 := strconv.ParseUint(partition, 10, 16)
	id, err3 := strconv.ParseUint(topic, 16, 64)
	if err != nil || err2 != nil || err3 != nil {
		return Origin{}, false
	}
	return Origin{Cluster: rest, TopicID: ident.TopicID(id), Partition: uint16(p), Sequence: n, Channel: channel}, true
}

func cutLast(text string) (before, after string, found bool) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+1:], true
}

// OriginOf reads the origin from the header of a message.
func OriginOf(header []byte) (Origin, bool) {
	if !bytes.Contains(header, []byte(headerOrigin)) {
		return Origin{}, false
	}
	fields := map[string]json.RawMessage{}
	var text string
	if json.Unmarshal(header, &fields) != nil || json.Unmarshal(fields[headerOrigin], &text) != nil {
		return Origin{}, false
	}
	o, ok := parseOrigin(text)
	if _, there := fields[headerOriginTime]; ok && there && json.Unmarshal(fields[headerOriginTime], &text) == nil {
		o.TimeNS, _ = strconv.ParseInt(text, 10, 64) // 0: not known
	}
	return o, ok
}

// WithOrigin returns a header with an origin, and with ##only_channel if the origin names a channel. The other fields
// stay as they are, byte by byte. A header that is not a JSON object is replaced.
func WithOrigin(header []byte, o Origin) []byte {
	added := []string{headerOrigin, o.String()}
	if o.TimeNS != 0 {
		added = append(added, headerOriginTime, strconv.FormatInt(o.TimeNS, 10))
	}
	if o.Channel != "" {
		added = append(added, headerOnlyChannel, o.Channel)
	}
	fields := map[string]json.RawMessage{}
	if json.Unmarshal(header, &fields) != nil || fields == nil {
		header = nil
	}
	rest := bytes.TrimLeft(header, " \t\r\n")
	for i := 0; i < len(added); i += 2 {
		if _, there := fields[added[i]]; there {
			rest = without(fields, added)
			break
		}
	}
	b := []byte("{")
	for i := 0; i < len(added); i += 2 {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, quoted(added[i])...), ':'), quoted(added[i+1])...)
	}
	if len(rest) > 0 {
		rest = bytes.TrimLeft(rest[1:], " \t\r\n")
	}
	if len(rest) == 0 {
		return append(b, '}')
	}
	if rest[0] != '}' {
		b = append(b, ',')
	}
	return append(b, rest...)
}

func without(fields map[string]json.RawMessage, named []string) []byte {
	for i := 0; i < len(named); i += 2 {
		delete(fields, named[i])
	}
	var b bytes.Buffer
	encode := json.NewEncoder(&b)
	encode.SetEscapeHTML(false)
	_ = encode.Encode(fields) // raw values that were decoded encode again
	return bytes.TrimSpace(b.Bytes())
}

func quoted(text string) []byte {
	b, _ := json.Marshal(text) // a string always encodes
	return b
}
