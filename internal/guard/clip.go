package guard

import (
	"strings"

	"github.com/lockstepmq/lockstep/internal/edge"
)

// clip makes a text of a stranger short, and harmless for a terminal. The copy lets go of the
// request's bytes.
func clip(text string) string {
	return edge.Printable(strings.Clone(text[:min(len(text), maxText)]))
}
