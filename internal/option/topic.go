// Package option defines the options of a topic and of a channel's policy: for each a struct that is stored, and a
// table with one row for each option. HTTP arguments, flags, --topic-default, the console's fields, merging and
// validation are derived from the table.
//
// A new topic option is a field of Topic, the same field of Effective, and a row of Topics. The compiler compares the
// two structs (Topic.Effective), and TestEveryFieldHasARow compares the struct with the table.
//
// # Goroutines
//
// None; the tables do not change.
package option

import (
	"cmp"
	"time"
)

// Topic holds the options of a topic as stored in its key. The zero value of a field is the default.
type Topic struct {
	RetentionMS    int64 `json:"retention_ms,omitempty"`
	RetentionBytes int64 `json:"retention_bytes,omitempty"`
	MaxBytes       int64 `json:"max_bytes,omitempty"`
	TTLMS          int64 `json:"ttl_ms,omitempty"`
	// The publish rate that each broker admits from its own clients, per second.
	MaxPutRate      int64  `json:"max_put_rate,omitempty"`       // messages
	MaxPutBytesRate int64  `json:"max_put_bytes_rate,omitempty"` // bytes
	DedupeWindowMS  int64  `json:"dedupe_window_ms,omitempty"`
	Dedupe          string `json:"dedupe,omitempty"` // DedupeContent; "": DedupeID
	// IdleMS is the time after which an unused topic is deleted; 0: never.
	IdleMS int64 `json:"idle_ms,omitempty"`
	// ChannelIdleMS is the time after which an unused channel is announced. It is deleted one --delete-grace later. 0:
	// never.
	ChannelIdleMS int64 `json:"channel_idle_ms,omitempty"`
}

// Effective holds the options that are in force for a topic, including defaults, as shown in views.
type Effective struct {
	RetentionMS     int64  `json:"retention_ms"`
	RetentionBytes  int64  `json:"retention_bytes"`
	MaxBytes        int64  `json:"max_bytes"`
	TTLMS           int64  `json:"message_ttl_ms"`
	MaxPutRate      int64  `json:"max_put_rate"`
	MaxPutBytesRate int64  `json:"max_put_bytes_rate"`
	DedupeWindowMS  int64  `json:"dedupe_window_ms"`
	Dedupe          string `json:"dedupe"`
	IdleMS          int64  `json:"idle_after_ms"`
	ChannelIdleMS   int64  `json:"channel_idle_after_ms"`
}

// How a topic recognises a message that is published again.
const (
	DedupeID      = "id"      // by the id that its producer assigned
	DedupeContent = "content" // without an id, by its body, key and headers
)

const (
	// DefaultDedupeWindowMS is the dedupe window of a topic that sets none.
	DefaultDedupeWindowMS = 120_000

	minIdle = time.Minute // the shortest time after which an unused topic is deleted, or an unused channel announced
)

// Topics has a row for each option of a topic, in the order of the fields.
var Topics = []Row[Topic]{
	{Name: "retention_time", Kind: Duration, Zero: "none", field: func(t *Topic) any { return &t.RetentionMS },
		Label: "Retention", Help: "keep finished messages for replay for this time, such as 24h"},
	{Name: "retention_bytes", Kind: Bytes, Zero: "no limit", field: func(t *Topic) any { return &t.RetentionBytes },
		Label: "Retention size, bytes", Help: "keep up to this many bytes of finished messages for replay, also without a retention time; 0 = no limit"},
	{Name: "max_bytes", Kind: Bytes, Zero: "no limit", field: func(t *Topic) any { return &t.MaxBytes },
		Label: "Size limit, bytes", Help: "refuse messages while more bytes are unfinished; 0 = no limit"},
	{Name: "message_ttl", Kind: Duration, Zero: "no limit", field: func(t *Topic) any { return &t.TTLMS },
		Label: "Message TTL", Help: "finish older messages instead of delivering them; 0s = no limit"},
	{Name: "max_put_rate", Kind: MessageRate, Zero: "no limit", field: func(t *Topic) any { return &t.MaxPutRate },
		Label: "Max throughput per broker, messages/s", Help: "refuse more than this many messages a second, at each broker; 0 = no limit"},
	{Name: "max_put_bytes_rate", Kind: ByteRate, Zero: "no limit", field: func(t *Topic) any { return &t.MaxPutBytesRate },
		Label: "Max throughput per broker, bytes/s", Help: "refuse more than this many bytes a second, at each broker; 0 = no limit"},
	{Name: "dedupe_window", Kind: Duration, field: func(t *Topic) any { return &t.DedupeWindowMS }, Label: "Dedupe window",
		Min: time.Second.Milliseconds(), Max: time.Hour.Milliseconds(), Zero: "the default", Default: DefaultDedupeWindowMS,
		Help: "recognise a message that is published again under its id for this time, 1s to 1h; 0s = 2m"},
	{Name: "dedupe", Kind: Choice, Choices: []string{DedupeID, DedupeContent}, field: func(t *Topic) any { return &t.Dedupe },
		Label: "Dedupe", Help: "id or content: recognise a message without an id that is published again by its body, key and headers"},
	{Name: "idle_after", Kind: Duration, Min: minIdle.Milliseconds(), Zero: "never", field: func(t *Topic) any { return &t.IdleMS },
		Grace: "a topic that is deleted for it must be one that can be undeleted", Label: "Delete when unused for",
		Help: "delete the topic when it has had no message published, no consumer and no unfinished message for this time, " +
			"1m or more; 0s = never"},
	{Name: "channel_idle_after", Kind: Duration, Min: minIdle.Milliseconds(), Zero: "never", field: func(t *Topic) any { return &t.ChannelIdleMS },
		Grace: "a channel is announced for that time before it is deleted", Label: "Delete channels when unused for",
		Help: "announce a channel that has had no consumer and no operation for this time, and delete it with its messages " +
			"after the brokers' --delete-grace; 1m or more, 0s = never"},
}

func (Topic) rows() []Row[Topic] { return Topics }

// Effective returns the options with defaults for those that are not set.
func (t Topic) Effective() Effective {
	for _, r := range Topics {
		switch field := r.field(&t).(type) {
		case *string:
			*field = cmp.Or(*field, r.Choices[0])
		case *int64:
			*field = cmp.Or(*field, r.Default)
		}
	}
	return Effective(t)
}

// Differing lists the options that differ from their defaults, as name=value.
func (e Effective) Differing() (list []string) {
	defaults := Topic(Topic{}.Effective())
	for _, r := range Topics {
		if value := r.Show(Topic(e)); value != r.Show(defaults) && value != r.Show(Topic{}) {
			list = append(list, r.Name+"="+value)
		}
	}
	return list
}

// NeedsGrace returns the first option that is set and requires a --delete-grace; nil if there is none.
func (t Topic) NeedsGrace() *Row[Topic] {
	for i := range Topics {
		if r := &Topics[i]; r.Grace != "" && r.Show(t) != r.Show(Topic{}) {
			return r
		}
	}
	return nil
}
