package clustercmd

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
)

func newClusterLimits(t *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:   "limits",
		Short: "the limits on topics, partitions and channels, beside their use",
		Long: `limits prints how many topics and partitions the cluster has, and the most channels
that a topic has, beside --max-topics, --max-partitions and --max-channels of the
broker that answers. Topics in the trash count with their partitions. The quotas of
users are in "nsqctl user list".`,
		Example: `  nsqctl cluster limits`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var v api.LimitsView
			if err := t.GetAny(cmd.Context(), "/v1/cluster/limits", nil, &v); err != nil {
				return err
			}
			if t.Output == "json" {
				return cli.PrintJSON(cmd.OutOrStdout(), v)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "OF\tUSED\tLIMIT")
			for _, l := range []struct {
				of string
				api.LimitView
			}{{"topics", v.Topics}, {"partitions", v.Partitions}, {"channels of a topic", v.Channels}} {
				limit := "-"
				if l.Limit > 0 {
					limit = fmt.Sprint(l.Limit)
				}
				fmt.Fprintf(w, "%s\t%d\t%s\n", l.of, l.Used, limit)
			}
			return w.Flush()
		},
	}
}
