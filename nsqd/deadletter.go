package nsqd

import (
	"encoding/json"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/nsqd/filter"
	"github.com/lockstepmq/lockstep/nsqd/queue"
)

// RedriveChannel keeps the dead letters of a dead-letter topic.
const RedriveChannel = api.DeadLetterChannel

// RedriveFilter is the filter of RedriveChannel, which skips the topic's own messages. Every dead letter has this header.
const RedriveFilter = "header:##original_channel*=*"

// headerRedriven is the id of the message in the dead-letter topic that was moved back.
const headerRedriven = "##redriven_id"

// DeadLetterHeader is the header of a message in a dead-letter topic, at most queue.MaxMessageHeader: the message's own
// header is left out if it does not fit or is no JSON.
type DeadLetterHeader struct {
	Topic    string          `json:"##original_topic"`
	Channel  string          `json:"##original_channel"`
	ID       string          `json:"##original_id"`
	TimeNS   int64           `json:"##original_time"` // of the put, unix ns
	Attempts uint16          `json:"##attempts"`
	Header   json.RawMessage `json:"##original_header,omitempty"`
}

// EncodeDeadLetter makes the header of a message that failed in a channel.
func EncodeDeadLetter(topic, channel string, d api.Delivery) []byte {
	h := DeadLetterHeader{Topic: topic, Channel: channel, ID: string(d.ID[:]), TimeNS: d.Message.Time, Attempts: d.Message.Attempts}
	if json.Valid(d.Message.Header) {
		h.Header = d.Message.Header
	}
	raw, _ := json.Marshal(h) // strings, numbers and valid JSON always marshal
	if len(raw) > queue.MaxMessageHeader {
		h.Header = nil
		raw, _ = json.Marshal(h)
	}
	return raw
}

// DecodeDeadLetter reads the header of a message in a dead-letter topic; false if it has none.
func DecodeDeadLetter(raw []byte) (h DeadLetterHeader, ok bool) {
	err := json.Unmarshal(raw, &h)
	return h, err == nil
}

// Redriven makes the header of the message that is moved back: its own header, and the channel in which it failed.
func (h DeadLetterHeader) Redriven() []byte {
	fields := map[string]json.RawMessage{} // a number as it is written
	_ = json.Unmarshal(h.Header, &fields)  // no object: nothing to keep
	if fields == nil {
		fields = map[string]json.RawMessage{}
	}
	only := quoted(h.Channel)
	fields[filter.HeaderOnlyChannel], fields[headerRedriven] = only, quoted(h.ID)
	raw, err := json.Marshal(fields)
	if err != nil || len(raw) > queue.MaxMessageHeader {
		raw, _ = json.Marshal(map[string]json.RawMessage{filter.HeaderOnlyChannel: only}) // a string always marshals
	}
	return raw
}

// quoted is a string in JSON.
func quoted(text string) json.RawMessage {
	raw, _ := json.Marshal(text) // a string always marshals
	return raw
}
