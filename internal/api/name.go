package api

import "strings"

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
