package api

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lockstepmq/lockstep/internal/api/outcome"
	"github.com/lockstepmq/lockstep/nsqd/filter"
)

// Names of topics and channels.
const (
	maxNameLength     = 64           // suffix included
	DeadLetterChannel = "redrive"    // of a dead-letter topic; it retains the dead letters until they are moved back
	EphemeralSuffix   = "#ephemeral" // of channels and topics that live as long as their clients
)

// ValidName reports whether s may name a topic or a channel: [.a-zA-Z0-9_-]+(#ephemeral)? of at most 64 bytes.
func ValidName(s string) bool {
	base := strings.TrimSuffix(s, EphemeralSuffix)
	return len(s) <= maxNameLength && base != "" && strings.IndexFunc(base, notInName) < 0
}

func notInName(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return false
	}
	return r != '.' && r != '_' && r != '-'
}

// NotReadyHeader marks an HTTP answer of a broker that does not serve yet and has ignored the request.
const NotReadyHeader = "Lockstep-Not-Ready"

// IsProbe reports whether a path is a probe of a supervisor or a load balancer. Its answer discloses nothing, and does
// not wait.
func IsProbe(path string) bool { return path == "/ping" || path == "/healthz" || path == "/readyz" }

// Count writes a number with its noun: 1 partition, 2 partitions.
func Count[N int | int64 | uint64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Printable escapes control characters and line breaks, because parts of log lines and of the output of tools come from
// clients.
func Printable(text string) string {
	if IsPrintable(text) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			escaped := strconv.QuoteRuneToASCII(r)
			b.WriteString(escaped[1 : len(escaped)-1])
		}
	}
	return b.String()
}

// IsPrintable reports whether Printable leaves a text unchanged.
func IsPrintable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// Names of headers.
const (
	ReservedHeaders = "##"             // prefix of those that brokers and clients of the replicated fork interpret
	HeaderTag       = filter.TagHeader // the tag of a message, which filters call "tag"
	MaxHeaderName   = 128              // bytes
)

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
		return fmt.Errorf("%w: the header %s is reserved", outcome.ErrInvalid, name) // clients of the fork compress bodies and announce that in this header
	}
	return nil
}
