package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
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
