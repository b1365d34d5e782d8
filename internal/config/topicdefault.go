package config

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
)

// minIdle is the least time after which an unused topic is deleted, or an unused channel announced (api.MinIdle).
const minIdle = time.Minute

// TopicDefault is one value of --topic-default: the defaults of new topics with matching names.
// 0 and "" leave the broker's own default.
type TopicDefault struct {
	Pattern                                  string // * matches any characters, ? one of them
	Partitions, ReplicationFactor, MinInSync int
	Durability                               string
	RetentionMS, TTLMS                       int64
	IdleMS, ChannelIdleMS                    int64
	RetentionBytes, MaxBytes                 int64
	MaxPutRate, MaxPutBytesRate              int64
}

// ParseTopicDefault reads "PATTERN:name=value;name=value". The names are those of the flags of
// "nsqctl topic create".
func ParseTopicDefault(text string) (d TopicDefault, err error) {
	pattern, rest, _ := strings.Cut(text, ":")
	d.Pattern = pattern
	if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
		return d, fmt.Errorf("%q begins with no pattern of names, such as orders.*", text)
	}
	for _, part := range strings.Split(rest, ";") {
		name, value, _ := strings.Cut(part, "=")
		if err := d.set(strings.TrimSpace(name), strings.TrimSpace(value)); err != nil {
			return d, fmt.Errorf("%s: %w", pattern, err)
		}
	}
	if d.MinInSync > 0 && d.ReplicationFactor == 0 {
		return d, fmt.Errorf("%s: min-in-sync takes a replication-factor beside it", pattern)
	}
	if d.MinInSync > d.ReplicationFactor {
		return d, fmt.Errorf("%s: min-in-sync %d is more than the replication-factor %d", pattern, d.MinInSync, d.ReplicationFactor)
	}
	return d, nil
}

func (d *TopicDefault) set(name, value string) error {
	number := func(to *int, most int) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > most {
			return fmt.Errorf("%s must be 1 to %d, not %q", name, most, value)
		}
		*to = n
		return nil
	}
	count := func(to *int64) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 1 || n > 1<<50 {
			return fmt.Errorf("%s must be a number above 0, not %q", name, value)
		}
		*to = n
		return nil
	}
	milliseconds := func(to *int64) error {
		t, err := time.ParseDuration(value)
		if err != nil || t < time.Millisecond {
			return fmt.Errorf("%s must be a duration such as 24h, not %q", name, value)
		}
		*to = t.Milliseconds()
		return nil
	}
	idle := func(to *int64) error {
		if err := milliseconds(to); err != nil || *to < minIdle.Milliseconds() {
			return fmt.Errorf("%s must be a duration of at least %s, not %q", name, minIdle, value)
		}
		return nil
	}
	switch name {
	case "partitions":
		return number(&d.Partitions, 1024)
	case "replication-factor":
		return number(&d.ReplicationFactor, 7)
	case "min-in-sync":
		return number(&d.MinInSync, 7)
	case "durability":
		if value != "sync" && value != "replicated" {
			return fmt.Errorf("durability must be sync or replicated, not %q", value)
		}
		d.Durability = value
		return nil
	case "retention-time":
		return milliseconds(&d.RetentionMS)
	case "message-ttl":
		return milliseconds(&d.TTLMS)
	case "retention-bytes":
		return count(&d.RetentionBytes)
	case "max-bytes":
		return count(&d.MaxBytes)
	case "max-put-rate":
		return count(&d.MaxPutRate)
	case "max-put-bytes-rate":
		return count(&d.MaxPutBytesRate)
	case "idle-after":
		return idle(&d.IdleMS)
	case "channel-idle-after":
		return idle(&d.ChannelIdleMS)
	}
	return fmt.Errorf("no setting %q: partitions, replication-factor, min-in-sync, durability, retention-time, retention-bytes, "+
		"message-ttl, max-bytes, max-put-rate, max-put-bytes-rate, idle-after, channel-idle-after", name)
}

// TopicDefaults are the values of --topic-default. Load has checked them.
func (o Options) TopicDefaults() (list []TopicDefault) {
	for _, text := range o.TopicDefault {
		if d, err := ParseTopicDefault(text); err == nil {
			list = append(list, d)
		}
	}
	return list
}

func (l *loader) validateTopicDefaults(o *Options) {
	for _, text := range o.TopicDefault {
		d, err := ParseTopicDefault(text)
		if err != nil {
			l.fault("--topic-default=%s: %v", text, err)
		}
		if d.IdleMS > 0 && o.DeleteGrace == 0 {
			l.fault("--topic-default=%s: idle-after requires a --delete-grace", text)
		}
		if d.ChannelIdleMS > 0 && o.DeleteGrace == 0 {
			l.fault("--topic-default=%s: channel-idle-after requires a --delete-grace", text)
		}
	}
	l.validateIdle(o, "--topic-idle-after", o.TopicIdleAfter, "a topic that is deleted for it must be one that can be undeleted")
	l.validateIdle(o, "--channel-idle-after", o.ChannelIdleAfter, "a channel is announced for that time before it is deleted")
}

// validateIdle refuses a time without use that is too short, or has no grace.
func (l *loader) validateIdle(o *Options, flag string, after time.Duration, why string) {
	switch {
	case after == 0:
	case after < minIdle:
		l.fault("%s=%s must be at least %s, or 0 (never)", flag, after, minIdle)
	case o.DeleteGrace == 0:
		l.fault("%s requires a --delete-grace: %s", flag, why)
	}
}
