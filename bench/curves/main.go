// Command curves draws the report of nsqctl bench -o json, read from its standard input, as an
// SVG: one curve per subject for a sweep, else one bar per row.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/lockstepmq/lockstep/internal/test/bench"
)

func main() {
	var report bench.Report
	err := json.NewDecoder(os.Stdin).Decode(&report)
	if err == nil {
		err = draw(os.Stdout, &report)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "curves:", err)
		os.Exit(1)
	}
}
