package option

import (
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"
)

// Policy is a channel's treatment of failing messages, and its filter, as stored in the channel's key. The zero value
// redelivers failed messages at once and without limit, and delivers every message.
type Policy struct {
	MaxAttempts     uint16  `json:"max_attempts,omitempty"`
	DeadLetterTopic string  `json:"dead_letter_topic,omitempty"`
	Backoff         Backoff `json:"retry_backoff,omitzero"`
	Filter          string  `json:"filter,omitempty"` // its text; see package nsqd/filter
	// Owner is the user that set the dead-letter topic. The policy publishes there with the rights of this user. "":
	// rights were not enforced, or an authorization service knew the client. Owner is not an option.
	Owner string `json:"owner,omitempty"`
}

// PolicyView is the representation of a Policy in the API and in exports.
type PolicyView struct {
	MaxAttempts     uint16  `json:"max_attempts"`
	DeadLetterTopic string  `json:"dead_letter_topic"`
	BackoffMS       int64   `json:"retry_backoff_ms"`
	BackoffFactor   float64 `json:"retry_backoff_factor"`
	BackoffMaxMS    int64   `json:"retry_backoff_max_ms"`
	BackoffJitter   float64 `json:"retry_backoff_jitter"`
	Filter          string  `json:"filter,omitempty"`
	Owner           string  `json:"owner,omitempty"`
}

// View returns the representation for the API.
func (p Policy) View() PolicyView {
	b := p.Backoff
	return PolicyView{p.MaxAttempts, p.DeadLetterTopic, b.BaseMS, b.Factor, b.MaxMS, b.Jitter, p.Filter, p.Owner}
}

// FilterHelp describes a filter (package nsqd/filter).
const FilterHelp = "deliver only messages that meet a condition: tag=VALUE or header:NAME=VALUE, " +
	"^= for a prefix, *= for a glob, ~= for RE2, ! before it for the opposite"

// Policies has a row for each option of a policy, in the order of the fields.
var Policies = []Row[Policy]{
	{Name: "max_attempts", Kind: Count, Zero: "no limit", field: func(p *Policy) any { return &p.MaxAttempts },
		Help: "attempts after which a message goes to the dead-letter topic; 0 = no limit"},
	{Name: "dead_letter_topic", Kind: Text, field: func(p *Policy) any { return &p.DeadLetterTopic },
		Help: "topic of the dead letters, created if missing; requires the right to publish there"},
	{Name: "retry_backoff", Kind: Delays, field: func(p *Policy) any { return &p.Backoff },
		Help: "least delay before a redelivery: BASE[,FACTOR[,MAX[,JITTER]]], such as 1s,2,5m,0.2"},
	{Name: "filter", Kind: Text, field: func(p *Policy) any { return &p.Filter },
		Help: FilterHelp + "; empty = every message"},
}

func (Policy) rows() []Row[Policy] { return Policies }

// Backoff is the minimum delay before a redelivery: base × factor^(attempts−1), at most max, randomly shortened by up
// to the fraction jitter. Base 0: no delay.
type Backoff struct {
	BaseMS int64   `json:"base_ms,omitempty"`
	Factor float64 `json:"factor,omitempty"`
	MaxMS  int64   `json:"max_ms,omitempty"`
	Jitter float64 `json:"jitter,omitempty"`
}

// maxBackoff bounds the times of a backoff.
const maxBackoff = 30 * 24 * time.Hour

var errBackoff = errors.New("must be base[,factor[,max[,jitter]]], such as 1s,2,5m,0.2")

// parseBackoff reads "base[,factor[,max[,jitter]]]"; "": no backoff.
func parseBackoff(text string) (b Backoff, err error) {
	if text == "" {
		return b, nil
	}
	parts := strings.Split(text, ",")
	if len(parts) > 4 {
		return b, errBackoff
	}
	var errs [4]error
	for i, part := range parts {
		switch {
		case i == 0:
			b.Factor = 2
			b.BaseMS, errs[i] = parseDelay(part)
		case part == "":
		case i == 1:
			b.Factor, errs[i] = strconv.ParseFloat(part, 64)
		case i == 2:
			b.MaxMS, errs[i] = parseDelay(part)
		case i == 3:
			b.Jitter, errs[i] = strconv.ParseFloat(part, 64)
		}
	}
	if errors.Join(errs[:]...) != nil || !(b.Factor >= 1 && b.Factor <= 100) || !(b.Jitter >= 0 && b.Jitter <= 1) {
		return Backoff{}, errBackoff
	}
	return b, nil
}

func parseDelay(text string) (ms int64, err error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxBackoff {
		return 0, errBackoff
	}
	return d.Milliseconds(), nil
}

// DelayMS is the delay in ms after the given number of attempts.
func (b Backoff) DelayMS(attempts uint16) int64 {
	if b.BaseMS <= 0 {
		return 0
	}
	ms := float64(b.BaseMS) * math.Pow(max(b.Factor, 1), float64(max(attempts, 1)-1))
	if b.MaxMS > 0 {
		ms = min(ms, float64(b.MaxMS))
	}
	return int64(min(ms, 1<<40) * (1 - min(max(b.Jitter, 0), 1)*rand.Float64()))
}
