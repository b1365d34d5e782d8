package httpapi

import "github.com/lockstepmq/lockstep/internal/option"

// argsLimits are the arguments of /topic/create and /v1/topic/set that set options of the topic.
var argsLimits = describeOptions(option.Topics)

// describeOptions returns the arguments that a table of options describes.
func describeOptions[T any](rows []option.Row[T]) (described []Argument) {
	for _, r := range rows {
		kind := Number
		switch r.Kind {
		case option.Duration:
			kind = Duration
		case option.Choice, option.Text, option.Delays:
			kind = Text
		}
		described = append(described, Argument{Name: r.Name, Kind: kind, Help: r.Help})
	}
	return described
}

// readOptions reads the arguments of argsLimits. A missing or empty one gives no value.
func readOptions(a *arguments, values *option.Change[option.Topic]) {
	for i := range option.Topics {
		r := &option.Topics[i]
		if text := a.Get(r.Name); text != "" {
			if err := values.Read(r, text); err != nil {
				a.fail("%s %w", r.Name, err)
			}
		}
	}
}
