// Package nsqtext writes bodies of NSQ commands as text, for tests that send commands as they like: several in one segment, with a
// header for each message, or damaged. Package internal/nsqclient is a connection that behaves.
package nsqtext

import (
	"encoding/binary"
	"encoding/json"
	"strings"
)

// Sized is a body behind its size.
func Sized(body string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + body
}

// Extended is a message of PUB_EXT and MPUB_EXT: its headers as JSON behind their size, then its body.
func Extended(headers map[string]any, body string) string {
	var text []byte
	if len(headers) > 0 {
		var err error
		if text, err = json.Marshal(headers); err != nil {
			panic(err) // a test makes the headers
		}
	}
	return string(binary.BigEndian.AppendUint16(nil, uint16(len(text)))) + string(text) + body
}

// Several is the body of MPUB and MPUB_EXT, behind its size.
func Several(messages []string) string {
	var b strings.Builder
	b.Write(binary.BigEndian.AppendUint32(nil, uint32(len(messages))))
	for _, m := range messages {
		b.WriteString(Sized(m))
	}
	return Sized(b.String())
}
