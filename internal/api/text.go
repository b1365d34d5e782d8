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

// DeadLetterChannel is the channel of a dead-letter topic that keeps the dead letters until they are moved back.
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

// NotReadyHeader marks an HTTP answer of a broker that does not serve yet: it has done nothing with the request, and
// another broker may be asked.
const NotReadyHeader = "Lockstep-Not-Ready"

// IsProbe reports whether a path is a probe of a supervisor or a load balancer. Its answer is one sentence, discloses
// nothing, and does not wait, whatever the broker does.
func IsProbe(path string) bool { return path == "/ping" || path == "/healthz" || path == "/readyz" }

// Printable escapes the characters of a text that a terminal would obey, and those that would begin a line of their
// own. Texts of log lines, and of the tools that show them, go through it: a part of them may be a stranger's.
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

// IsPrintable reports whether Printable leaves a text as it is.
func IsPrintable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}
