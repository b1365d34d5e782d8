package edge

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lockstepmq/lockstep/nsqd/filter"
)

// ReservedHeaders is the beginning of the names of headers that brokers and clients of the
// replicated fork interpret.
const ReservedHeaders = "##"

// HeaderTag is the header with the tag of a message. Its name is that of the fork; filters call it
// "tag".
const HeaderTag = filter.TagHeader

// clientHeaders are the reserved names that a client may set in PUB_EXT. Tools that copy messages
// set those of dead letters too.
var clientHeaders = []string{
	"##key", "##ttl_ms", "##trace_id", "##only_channel", HeaderTag, "##channel_filter_tag",
	"##original_topic", "##original_channel", "##original_id", "##original_time", "##original_header", "##attempts", "##redriven_id",
	"##id", "##seq",
}

// MaxHeaderName bounds the name of a header in bytes.
const MaxHeaderName = 128

// CheckHeaderName refuses the name of a header that a client may not set.
func CheckHeaderName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name of a header is empty", ErrInvalid)
	case len(name) > MaxHeaderName:
		return fmt.Errorf("%w: the name of a header has %d bytes, at most %d", ErrInvalid, len(name), MaxHeaderName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == utf8.RuneError }):
		return fmt.Errorf("%w: the name of a header %q is not printable UTF-8", ErrInvalid, name)
	case strings.HasPrefix(name, ReservedHeaders) && !slices.Contains(clientHeaders, name) && !strings.Contains(name, "compress"):
		return fmt.Errorf("%w: the header %s is reserved", ErrInvalid, name) // clients of the fork compress bodies, and say so
	}
	return nil
}
