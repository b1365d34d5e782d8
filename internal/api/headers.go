package api

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/nsqd/filter"
)

// ReservedHeaders is the prefix of the headers that brokers and clients of the replicated fork interpret.
const ReservedHeaders = "##"

// HeaderTag is the header with the tag of a message, which filters call "tag".
const HeaderTag = filter.TagHeader

// clientHeaders are the reserved names that a client with the right to publish may set in PUB_EXT.
var clientHeaders = []string{"##key", "##ttl_ms", "##trace_id", HeaderTag, "##channel_filter_tag", "##id", "##seq"}

// administratorHeaders are the reserved names that require the right to administer the topic in PUB_EXT:
// ##only_channel hides a message from other channels, and a redrive publishes a message with the headers of a dead letter
// to another topic.
var administratorHeaders = []string{
	"##only_channel",
	"##original_topic", "##original_channel", "##original_id", "##original_time", "##original_header", "##attempts", "##redriven_id",
}

// TakesAdminister reports whether a header of this name requires the right to administer the topic.
func TakesAdminister(name string) bool { return slices.Contains(administratorHeaders, name) }

// MaxHeaderName bounds the name of a header in bytes.
const MaxHeaderName = 128

// CheckHeaderName refuses the name of a header that a client may not set.
func CheckHeaderName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name of a header is empty", outcome.ErrInvalid)
	case len(name) > MaxHeaderName:
		return fmt.Errorf("%w: the name of a header has %d bytes, at most %d", outcome.ErrInvalid, len(name), MaxHeaderName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == utf8.RuneError }):
		return fmt.Errorf("%w: the name of a header %q is not printable UTF-8", outcome.ErrInvalid, name)
	case strings.HasPrefix(name, ReservedHeaders) && !slices.Contains(clientHeaders, name) && !TakesAdminister(name) && !strings.Contains(name, "compress"):
		return fmt.Errorf("%w: the header %s is reserved", outcome.ErrInvalid, name) // clients of the fork compress bodies, and say so
	}
	return nil
}
