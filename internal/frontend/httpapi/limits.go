package httpapi

import (
	"net/url"

	"github.com/lockstepmq/lockstep/internal/api"
)

// argsLimits are the arguments of /topic/create and /v1/topic/set that set limits of the topic.
var _, argsLimits = readLimits(nil)

// readLimits reads the arguments that set limits of a topic, and describes them. A limit is one line here:
// its argument, the form of the value, and the field.
func readLimits(values url.Values) (l api.TopicLimits, described []Argument) {
	a := arguments{Values: values}
	limit := func(of Argument, read func(name string, to **int64), to **int64) {
		described = append(described, of)
		read(of.Name, to)
	}
	limit(duration("retention_time", "consumed messages are kept this long"), a.duration, &l.RetentionMS)
	limit(number("retention_bytes", "consumed messages are kept while a partition has at most this many bytes"), a.bytes, &l.RetentionBytes)
	limit(number("max_bytes", "puts are refused when a partition has this many bytes; 0: no limit"), a.bytes, &l.MaxBytes)
	limit(duration("message_ttl", "older messages are not delivered; 0: no limit"), a.duration, &l.TTLMS)
	limit(number("max_put_rate", "messages a second and broker; 0: no limit"), a.messageRate, &l.MaxPutRate)
	limit(number("max_put_bytes_rate", "bytes a second and broker; 0: no limit"), a.byteRate, &l.MaxPutBytesRate)
	limit(duration("dedupe_window", "a message that is published again under its id is recognised for this time, 1s to 1h; 0: 2m"), a.window, &l.DedupeWindowMS)
	described = append(described, text("dedupe", "id: a message is recognised by its id alone; content: without an id by its body, key and headers"))
	if l.Dedupe = a.Get("dedupe"); l.Dedupe != "" && l.Dedupe != api.DedupeID && l.Dedupe != api.DedupeContent {
		a.fail("dedupe must be %s or %s", api.DedupeID, api.DedupeContent)
	}
	limit(duration("idle_after", "the topic is deleted when it has had no put, no consumer and no unfinished message for this time, 1m or more; 0: never"), a.idle, &l.IdleMS)
	limit(duration("channel_idle_after", "a channel that has had no consumer and no operation for this time, 1m or more, is announced, and deleted with its messages after --delete-grace; 0: never"), a.idle, &l.ChannelIdleMS)
	l.Malformed = a.err
	return l, described
}
