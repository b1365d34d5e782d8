package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// StepsShown bounds the partitions of a plan that the text lists; "wide" and JSON have all.
const StepsShown = 20

// PlanFlags adds --dry-run and --yes to a command.
func PlanFlags(cmd *cobra.Command) {
	cmd.Flags().Bool("dry-run", false, "print the plan, and change nothing")
	cmd.Flags().BoolP("yes", "y", false, "do not ask on a terminal")
}

// Planning reports whether a command with PlanFlags only shows its plan, and whether it asks: on a terminal, unless --yes
// is given.
func Planning(cmd *cobra.Command, t *Target) (dry, ask bool) {
	dry, _ = cmd.Flags().GetBool("dry-run") // declared by PlanFlags
	yes, _ := cmd.Flags().GetBool("yes")
	return dry, !dry && !yes && t.Output != "json" && IsTerminal(cmd.OutOrStdout()) && IsTerminal(os.Stdin)
}

// Confirm asks a question that y or yes answers.
func Confirm(out io.Writer, in io.Reader) error {
	fmt.Fprint(out, "continue? [y/N] ")
	line, _ := bufio.NewReader(in).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was changed")
}
