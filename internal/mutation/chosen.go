//go:build !mutation

package mutation

// Enabled says whether this binary was built with the switch.
const Enabled = false

// Chosen is the line or rule that is switched off: none.
func Chosen() string { return "" }
