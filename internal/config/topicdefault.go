package config

import (
	"fmt"

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

// TopicOptions are the default options of all new topics: the settings with an option tag. Load has checked them.
func (o Options) TopicOptions() option.Topic {
	var c option.Change[option.Topic]
	for s := range settings(&o) {
		if s.option != nil {
			_ = c.Read(s.option, fmt.Sprint(s.value))
		}
	}
	return c.Values
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
	for s := range settings(o) {
		if s.option == nil {
			continue
		}
		var c option.Change[option.Topic]
		if err := c.Read(s.option, fmt.Sprint(s.value)); err != nil {
			l.fault("--%s=%v %v", s.flag, s.value, err)
		}
		if r := c.Values.NeedsGrace(); r != nil && o.DeleteGrace == 0 {
			l.fault("--%s requires a --delete-grace: %s", s.flag, r.Grace)
		}
	}
}
