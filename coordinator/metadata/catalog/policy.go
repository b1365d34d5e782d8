package catalog

import (
	"github.com/lockstepmq/lockstep/internal/ident"
	"github.com/lockstepmq/lockstep/nsqd"
)

// Policy is the policy in a channel's key, for its queue.
func (c *Catalog) Policy(t ident.TopicID, channel string) nsqd.Policy {
	s := c.Channels(t)[channel]
	p := s.Policy
	return nsqd.Policy{
		MaxAttempts: p.MaxAttempts,
		DeadLetters: p.DeadLetterTopic != "",
		Backoff:     nsqd.Backoff{BaseMS: p.Backoff.BaseMS, MaxMS: p.Backoff.MaxMS, Factor: p.Backoff.Factor, Jitter: p.Backoff.Jitter},
		Filter:      p.Filter,
		Revision:    s.Revision,
		Channel:     s.ID,
	}
}
