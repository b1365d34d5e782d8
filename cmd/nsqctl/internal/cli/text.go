package cli

import "github.com/lockstepmq/lockstep/internal/ident"

// Mark returns text if so is true, else "".
func Mark(so bool, text string) string {
	if so {
		return text
	}
	return ""
}

// Names returns the names of brokers, with commas between them.
func Names(nodes []ident.Node) (s string) {
	for i, n := range nodes {
		if i > 0 {
			s += ","
		}
		s += string(n)
	}
	return s
}
