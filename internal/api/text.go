package api

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxNameLength bounds a topic's or channel's name, suffix included.
const maxNameLength = 64

// DeadLetterChannel is the channel of a dead-letter topic that retains the dead letters until they are moved back.
const DeadLetterChannel = "redrive"

// EphemeralSuffix marks channels and topics that live as long as their clients.
const EphemeralSuffix = "#ephemeral"

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

// Printable escapes control characters and line breaks, because parts of log lines, and of the output of tools, come
// from clients.
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
