package queue

import (
	"bytes"
	"encoding/json"
)

// HeaderTTL is the header with the time to live of a message, in ms since the put. The limit of the topic also applies.
const HeaderTTL = "##ttl_ms"

// MaxTTLMS is the longest time to live: its nanoseconds fit into 63 bits.
const MaxTTLMS = 1 << 42

var quotedTTL = []byte(`"` + HeaderTTL + `"`)

// TTLMS is the message's own limit in ms; 0: none.
func (m *Message) TTLMS() int64 {
	if !bytes.Contains(m.Header, quotedTTL) && bytes.IndexByte(m.Header, '\\') < 0 { // JSON may write the name with escapes
		return 0
	}
	var h struct {
		MS int64 `json:"##ttl_ms"`
	}
	if json.Unmarshal(m.Header, &h) != nil {
		return 0
	}
	return min(max(h.MS, 0), MaxTTLMS)
}
