package option

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Default is one value of --topic-default: the defaults of new topics with matching names. 0, "" and false keep the
// broker's own default.
type Default struct {
	Pattern                                  string // path.Match
	Partitions, ReplicationFactor, MinInSync int
	Durability                               string
	Ordered                                  bool
	Options                                  Change[Topic]
}

// ParseDefault reads "PATTERN:name=value;name=value". The names are those of the flags of "nsqctl topic create".
func ParseDefault(text string) (d Default, err error) {
	pattern, rest, _ := strings.Cut(text, ":")
	d.Pattern = pattern
	if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
		return d, fmt.Errorf("%q does not begin with a pattern of names, such as orders.*", text)
	}
	for _, part := range strings.Split(rest, ";") {
		name, value, _ := strings.Cut(part, "=")
		if err := d.set(strings.TrimSpace(name), strings.TrimSpace(value)); err != nil {
			return d, fmt.Errorf("%s: %w", pattern, err)
		}
	}
	if d.MinInSync > 0 && d.ReplicationFactor == 0 {
		return d, fmt.Errorf("%s: min-in-sync requires a replication-factor", pattern)
	}
	if d.MinInSync > d.ReplicationFactor {
		return d, fmt.Errorf("%s: min-in-sync %d is more than the replication-factor %d", pattern, d.MinInSync, d.ReplicationFactor)
	}
	return d, nil
}

func (d *Default) set(name, value string) (err error) {
	number := func(to *int, most int) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > most {
			return fmt.Errorf("%s must be 1 to %d, not %q", name, most, value)
		}
		*to = n
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
	case "ordered":
		if d.Ordered, err = strconv.ParseBool(value); err != nil {
			return fmt.Errorf("ordered must be true or false, not %q", value)
		}
		return nil
	}
	at := slices.IndexFunc(Topics, func(r Row[Topic]) bool { return r.Flag() == name })
	if at < 0 {
		names := []string{"partitions", "replication-factor", "min-in-sync", "durability", "ordered"}
		for i := range Topics {
			names = append(names, Topics[i].Flag())
		}
		return fmt.Errorf("no setting %q: %s", name, strings.Join(names, ", "))
	}
	if err := d.Options.Read(&Topics[at], value); err != nil {
		return fmt.Errorf("%s %w, not %q", name, err, value)
	}
	return nil
}
