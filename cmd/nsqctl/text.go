package main

import "github.com/lockstepmq/lockstep/internal/ident"

// mark returns text if so is true, else "".
func mark(so bool, text string) string {
	if so {
		return text
	}
	return ""
}

func names(nodes []ident.Node) (s string) {
	for i, n := range nodes {
		if i > 0 {
			s += ","
		}
		s += string(n)
	}
	return s
}
