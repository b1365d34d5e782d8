//go:build mutation

package mutation

import "os"

// Enabled says whether this binary was built with the switch.
const Enabled = true

// chosen never changes: a process is one mutant.
var chosen = os.Getenv("LOCKSTEP_MUTATION")

// Chosen is the line or rule that is switched off; "" = none.
func Chosen() string { return chosen }
