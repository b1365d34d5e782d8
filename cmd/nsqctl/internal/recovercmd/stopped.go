package recovercmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/recovery"
)

// stopped is the stopped broker that a command changes, and the operator's confirmation.
type stopped struct {
	recovery.Broker
	confirm string
}

// declare declares the flags of the command. meaning is the fact that the operator confirms.
func (s *stopped) declare(cmd *cobra.Command, meaning string) {
	f := cmd.Flags()
	f.StringVar(&s.DataPath, "data-path", "", "data path of the stopped broker")
	f.StringVar(&s.Node, "node-name", "", "node name of the stopped broker")
	f.StringVar(&s.Cluster, "cluster-name", "lockstep", "cluster name of the broker")
	f.StringVar(&s.confirm, "confirm", "", "the node's name again, to confirm that "+meaning)
	for _, name := range []string{"data-path", "node-name"} {
		_ = cmd.MarkFlagRequired(name) // the flags are declared above
	}
}

// confirmed refuses a command without its confirmation. loss is what it loses.
func (s *stopped) confirmed(loss string) error {
	if s.confirm != s.Node {
		return fmt.Errorf("%s: repeat with --confirm %s", loss, s.Node)
	}
	return nil
}
