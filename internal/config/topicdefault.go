package config

import (
	"time"

	"github.com/lockstepmq/lockstep/internal/option"
)

// TopicDefaults are the values of --topic-default. Load has checked them.
func (o Options) TopicDefaults() (list []option.Default) {
	for _, text := range o.TopicDefault {
		if d, err := option.ParseDefault(text); err == nil {
			list = append(list, d)
		}
	}
	return list
}

func (l *loader) validateTopicDefaults(o *Options) {
	for _, text := range o.TopicDefault {
		d, err := option.ParseDefault(text)
		if err != nil {
			l.fault("--topic-default=%s: %v", text, err)
		}
		if r := d.Options.Values.NeedsGrace(); r != nil && o.DeleteGrace == 0 {
			l.fault("--topic-default=%s: %s requires a --delete-grace", text, r.Flag())
		}
	}
	l.validateIdle(o, "--topic-idle-after", o.TopicIdleAfter, option.Topic{IdleMS: o.TopicIdleAfter.Milliseconds()})
	l.validateIdle(o, "--channel-idle-after", o.ChannelIdleAfter, option.Topic{ChannelIdleMS: o.ChannelIdleAfter.Milliseconds()})
}

// validateIdle refuses a time without use that is too short, or has no grace.
func (l *loader) validateIdle(o *Options, flag string, after time.Duration, options option.Topic) {
	switch {
	case after == 0:
	case after < option.MinIdle:
		l.fault("%s=%s must be at least %s, or 0 (never)", flag, after, option.MinIdle)
	case o.DeleteGrace == 0:
		l.fault("%s requires a --delete-grace: %s", flag, options.NeedsGrace().Grace)
	}
}
