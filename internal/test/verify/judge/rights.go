package judge

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Grant is a right that credentials have for some time.
type Grant struct {
	Who   string // the credentials: a user of the same name that is made again, and a new token, are others
	Right string // publish, consume
	Asked time.Duration
	Known map[string]time.Duration // broker → a time at which it knows the right
	// Withdrawn is when the end of the right was asked for; 0 = never.
	Withdrawn time.Duration
	Gone      map[string]time.Duration // broker → a time at which it knows of the end
}

// Use is one request that takes a right.
type Use struct {
	Who, Right, Text, Broker string
	Sent, Answered           time.Duration
	Accepted                 bool
	Denied                   bool // for lack of the right; neither = there is no answer, or another one
	// Pushed: the broker sent a message that was asked for earlier. It has a while to learn that the right has ended.
	Pushed bool
}

// pushing is how long messages may be under way to a client whose right has ended.
const pushing = 2 * time.Second

// rights judges one use.
func (s *state) rights(u Use) {
	allowed, certain := false, false
	for _, g := range s.h.Grants {
		if g.Who != u.Who || g.Right != u.Right || g.Asked > u.Answered {
			continue
		}
		gone, ended := g.Gone[u.Broker]
		known, begun := g.Known[u.Broker]
		switch {
		case ended && u.Pushed:
			allowed = allowed || u.Answered <= gone+pushing || s.disturbed(gone-quiet, u.Answered)
		case ended:
			allowed = allowed || u.Sent <= gone
		default:
			allowed = true
		}
		certain = certain || begun && known <= u.Sent && (g.Withdrawn == 0 || u.Answered < g.Withdrawn)
	}
	switch {
	case u.Accepted && !allowed:
		s.fault("rights", "%s of %s, sent at %s, was accepted by %s at %s without the right to %s: %s", u.Text, u.Who, u.Sent, u.Broker, u.Answered, u.Right, s.grants(u))
	case u.Denied && certain:
		s.fault("rights", "%s of %s, sent at %s, was denied by %s at %s, which knew the right to %s: %s", u.Text, u.Who, u.Sent, u.Broker, u.Answered, u.Right, s.grants(u))
	}
}

// grants describes the grants that concern a use.
func (s *state) grants(u Use) string {
	var text strings.Builder
	for _, g := range s.h.Grants {
		if g.Who == u.Who && g.Right == u.Right {
			fmt.Fprintf(&text, "[asked %s, known %v, withdrawn %s, gone %v] ", g.Asked, g.Known, g.Withdrawn, g.Gone)
		}
	}
	return cmp.Or(text.String(), "it never had it")
}
