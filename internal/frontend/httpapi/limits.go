package httpapi

import (
	"net/url"

	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/option"
)

// argsLimits are the arguments of /topic/create and /v1/topic/set that set options of the topic.
var argsLimits = describeOptions(option.Topics)

func describeOptions(rows []option.Row) (described []Argument) {
	for _, r := range rows {
		kind := Number
		switch r.Kind {
		case option.Duration:
			kind = Duration
		case option.Choice:
			kind = Text
		}
		described = append(described, Argument{Name: r.Name, Kind: kind, Help: r.Argument})
	}
	return described
}

// readLimits reads the arguments of argsLimits. A missing or empty one gives no value.
func readLimits(values url.Values) (l api.TopicLimits) {
	a := arguments{Values: values}
	for i := range option.Topics {
		r := &option.Topics[i]
		if text := a.Get(r.Name); text != "" {
			if err := l.Read(r, text); err != nil {
				a.fail("%s %w", r.Name, err)
			}
		}
	}
	l.Malformed = a.err
	return l
}
