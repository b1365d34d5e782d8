package tcp

import (
	"strings"

	"github.com/lockstepmq/lockstep/internal/api"
)

// extFilter is the filter that a client of the replicated fork asks for in IDENTIFY. There it is a setting of the
// consumer: the messages that no consumer of a channel takes stay. Here a filter is a setting of the channel, so that
// consumers of one channel do not finish each other's messages. A client that asks for a filter may subscribe to a
// channel that has the same one; any other SUB is refused, and the connection stays.
type extFilter struct {
	Type    int    `json:"type"`
	Inverse bool   `json:"inverse"`
	Key     string `json:"filter_ext_key"`
	Data    string `json:"filter_data"`
}

// The types of extFilter.
const (
	extFilterExact  = 1
	extFilterRegexp = 2
	extFilterGlob   = 3
)

// filter is the text of the filter that the client asks for, as a channel's policy has it; "" = it asks for none.
// refused says why no channel can have it.
func (id *identity) filter() (text, refused string) {
	f := &id.ExtFilter
	switch {
	case id.DesiredTag == "" && f.Type == 0:
		return "", ""
	case id.DesiredTag != "" && f.Type != 0:
		return "", "desired_tag and ext_filter together are not supported: a filter is one condition"
	case id.DesiredTag != "":
		return "tag=" + id.DesiredTag, ""
	}
	name := "header:" + f.Key
	if f.Key == api.HeaderTag {
		name = "tag"
	}
	if f.Inverse {
		name = "!" + name
	}
	switch f.Type {
	case extFilterExact:
		return name + "=" + f.Data, ""
	case extFilterRegexp:
		return name + "~=" + f.Data, ""
	case extFilterGlob:
		if strings.ContainsAny(f.Data, `[]{}\`) {
			return "", "ext_filter with a glob of other characters than * and ? is not supported"
		}
		return name + "*=" + f.Data, ""
	}
	return "", "ext_filter of several conditions is not supported: a filter is one condition"
}
