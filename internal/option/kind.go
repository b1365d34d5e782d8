package option

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Kind is the form of an option's value.
type Kind int

// The kinds of options. All but Choice are numbers.
const (
	Duration    Kind = iota // in ms; written as 24h
	Bytes                   // a number of bytes
	MessageRate             // messages a second
	ByteRate                // bytes a second
	Choice                  // one of the row's choices
)

// maxRate bounds a publish rate, in messages or bytes a second.
const maxRate = 1 << 40

// Parse reads a number of this kind. The error begins with "must be".
func (k Kind) Parse(text string) (int64, error) {
	if k == Duration {
		return parseDuration(text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	valid := err == nil && n >= 0
	switch {
	case k == Bytes && !valid:
		return 0, errors.New("must be a number of bytes")
	case k == MessageRate && (!valid || n > maxRate):
		return 0, fmt.Errorf("must be a number of messages a second, 0 (no limit) to %d", int64(maxRate))
	case k == ByteRate && (!valid || n > maxRate):
		return 0, fmt.Errorf("must be a number of bytes a second, 0 (no limit) to %d", int64(maxRate))
	}
	return n, nil
}

// parseDuration reads a duration as milliseconds.
func parseDuration(text string) (int64, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, errors.New("must be a duration such as 24h")
	}
	if d > 0 && d < time.Millisecond { // or it would be 0, which often means none
		return 0, errors.New("must be at least 1ms, or 0")
	}
	return d.Milliseconds(), nil
}

func milliseconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
