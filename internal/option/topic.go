// Package option has the options of a topic: the struct that is stored, and a table with one row for each option.
// HTTP arguments, flags, --topic-default, views, merging and validation follow the table.
//
// A new option is a field of Topic, the same field of Effective, and a row of Topics. The compiler compares the two
// structs (Topic.Effective), and TestEveryFieldHasARow compares the struct with the table.
//
// # Goroutines
//
// None; the table does not change.
package option

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Topic are the options of a topic as its key has them. The zero value of a field is the default.
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
	// IdleMS is the time after which the topic is deleted if nothing uses it; 0 = never.
	IdleMS int64 `json:"idle_ms,omitempty"`
	// ChannelIdleMS is the time after which a channel is announced if nothing uses it, and deleted a grace later;
	// 0 = never.
	ChannelIdleMS int64 `json:"channel_idle_ms,omitempty"`
}

// Effective are the options that hold for a topic, with the defaults, as views show them.
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
	DedupeID      = "id"      // by the id that its producer gave it
	DedupeContent = "content" // without an id, by its body, key and headers
)

// DefaultDedupeWindowMS is the dedupe window of a topic that names none.
const DefaultDedupeWindowMS = 120_000

// MinIdle is the least time after which a topic that nothing uses is deleted, or a channel announced.
const MinIdle = time.Minute

// Row describes one option.
type Row struct {
	Name     string // of the HTTP argument; Flag has the spelling of flags
	Kind     Kind
	Argument string // help of the HTTP argument
	Help     string // help of the flag
	Min, Max int64  // bounds of a number that is not 0; 0 = none
	Zero     string // meaning of 0, for errors
	Default  int64  // what 0 stands for in views
	Choices  []string
	Grace    string // the reason why the option requires a --delete-grace; "": it does not

	number func(*Topic) *int64  // the field of a number
	text   func(*Topic) *string // the field of a Choice; "" is Choices[0]
}

// Topics has a row for each option of a topic, in the order of the fields.
var Topics = []Row{
	{Name: "retention_time", Kind: Duration, number: func(t *Topic) *int64 { return &t.RetentionMS },
		Argument: "consumed messages are kept this long",
		Help:     "keep finished messages for replay for this time, such as 24h"},
	{Name: "retention_bytes", Kind: Bytes, number: func(t *Topic) *int64 { return &t.RetentionBytes },
		Argument: "consumed messages are kept while a partition has at most this many bytes",
		Help:     "keep this many bytes of finished messages for replay"},
	{Name: "max_bytes", Kind: Bytes, number: func(t *Topic) *int64 { return &t.MaxBytes },
		Argument: "puts are refused when a partition has this many bytes; 0: no limit",
		Help:     "refuse puts while more bytes are unfinished; 0 = no limit"},
	{Name: "message_ttl", Kind: Duration, number: func(t *Topic) *int64 { return &t.TTLMS },
		Argument: "older messages are not delivered; 0: no limit",
		Help:     "finish older messages instead of delivering them; 0s = no limit"},
	{Name: "max_put_rate", Kind: MessageRate, number: func(t *Topic) *int64 { return &t.MaxPutRate },
		Argument: "messages a second and broker; 0: no limit",
		Help:     "refuse puts beyond this many messages a second, at each broker; 0 = no limit"},
	{Name: "max_put_bytes_rate", Kind: ByteRate, number: func(t *Topic) *int64 { return &t.MaxPutBytesRate },
		Argument: "bytes a second and broker; 0: no limit",
		Help:     "refuse puts beyond this many bytes a second, at each broker; 0 = no limit"},
	{Name: "dedupe_window", Kind: Duration, number: func(t *Topic) *int64 { return &t.DedupeWindowMS },
		Min: time.Second.Milliseconds(), Max: time.Hour.Milliseconds(), Zero: "the default", Default: DefaultDedupeWindowMS,
		Argument: "a message that is published again under its id is recognised for this time, 1s to 1h; 0: 2m",
		Help:     "recognise a message that is published again under its id for this time, 1s to 1h, 0s = 2m"},
	{Name: "dedupe", Kind: Choice, text: func(t *Topic) *string { return &t.Dedupe }, Choices: []string{DedupeID, DedupeContent},
		Argument: "id: a message is recognised by its id alone; content: without an id by its body, key and headers",
		Help:     "id or content: recognise a message without an id that is published again by its body, key and headers"},
	{Name: "idle_after", Kind: Duration, number: func(t *Topic) *int64 { return &t.IdleMS },
		Min: MinIdle.Milliseconds(), Zero: "never", Grace: "a topic that is deleted for it must be one that can be undeleted",
		Argument: "the topic is deleted when it has had no put, no consumer and no unfinished message for this time, 1m or more; 0: never",
		Help:     "delete the topic when it has had no put, no consumer and no unfinished message for this time, 1m or more, 0s = never"},
	{Name: "channel_idle_after", Kind: Duration, number: func(t *Topic) *int64 { return &t.ChannelIdleMS },
		Min: MinIdle.Milliseconds(), Zero: "never", Grace: "a channel is announced for that time before it is deleted",
		Argument: "a channel that has had no consumer and no operation for this time, 1m or more, is announced, and deleted with its messages after --delete-grace; 0: never",
		Help:     "announce a channel that has had no consumer and no operation for this time, and delete it with its messages after the brokers' --delete-grace; 1m or more, 0s = never"},
}

// Flag returns the name of the option as a flag of nsqctl.
func (r *Row) Flag() string { return strings.ReplaceAll(r.Name, "_", "-") }

// Show returns the option's value for a person.
func (r *Row) Show(e Effective) string {
	t := Topic(e)
	switch {
	case r.text != nil:
		return *r.text(&t)
	case r.Kind == Duration:
		return milliseconds(*r.number(&t)).String()
	}
	return fmt.Sprint(*r.number(&t))
}

// set reads a value into the option's field. The error begins with "must be".
func (r *Row) set(t *Topic, value string) error {
	if r.text != nil {
		if !slices.Contains(r.Choices, value) {
			return fmt.Errorf("must be %s", strings.Join(r.Choices, " or "))
		}
		if value == r.Choices[0] {
			value = ""
		}
		*r.text(t) = value
		return nil
	}
	n, err := r.Kind.Parse(value)
	switch {
	case err != nil:
		return err
	case n != 0 && r.Max != 0 && (n < r.Min || n > r.Max):
		return fmt.Errorf("must be %s to %s, or 0 (%s)", milliseconds(r.Min), milliseconds(r.Max), r.Zero)
	case n != 0 && n < r.Min:
		return fmt.Errorf("must be %s or more, or 0 (%s)", milliseconds(r.Min), r.Zero)
	}
	*r.number(t) = n
	return nil
}

func (r *Row) copy(to, from *Topic) {
	if r.text != nil {
		*r.text(to) = *r.text(from)
		return
	}
	*r.number(to) = *r.number(from)
}

// Effective returns the options with the defaults of those that are not set.
func (t Topic) Effective() Effective {
	for i := range Topics {
		r := &Topics[i]
		if r.text != nil {
			if field := r.text(&t); *field == "" {
				*field = r.Choices[0]
			}
		} else if field := r.number(&t); *field == 0 {
			*field = r.Default
		}
	}
	return Effective(t)
}

// NeedsGrace returns the first option that is set and requires a --delete-grace; nil: none does.
func (t Topic) NeedsGrace() *Row {
	for i := range Topics {
		if r := &Topics[i]; r.Grace != "" && *r.number(&t) > 0 {
			return r
		}
	}
	return nil
}

// Change has new values for some of a topic's options. The zero value changes nothing; changes can be compared by ==.
type Change struct {
	Values Topic  // zero where no value is given
	given  uint64 // bit i: Topics[i] has a new value, perhaps 0
}

// Read reads the new value of an option that a row of Topics describes. The error begins with "must be".
func (c *Change) Read(r *Row, value string) error {
	if err := r.set(&c.Values, value); err != nil {
		return err
	}
	c.given |= 1 << slices.IndexFunc(Topics, func(x Row) bool { return x.Name == r.Name })
	return nil
}

// Apply gives the options of t the new values.
func (c Change) Apply(t *Topic) {
	for i := range Topics {
		if c.given&(1<<i) != 0 {
			Topics[i].copy(t, &c.Values)
		}
	}
}
