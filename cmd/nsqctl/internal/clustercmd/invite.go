package clustercmd

import (
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
)

func newInvite(t *cli.Target) *cobra.Command {
	var length time.Duration
	var withdraw bool
	cmd := &cobra.Command{
		Use:   "invite [BROKER]",
		Short: "let a further broker join the cluster",
		Long: `invite admits a broker of this --node-name to a running cluster with embedded etcd, for
a time. No broker is restarted. The broker needs a certificate of the cluster's authority
with this name (nsqctl cert broker), and names itself and the present brokers in --join, or
in --etcd-initial-cluster. The invitation is used up when it has joined. --withdraw ends
an invitation before that. Without a name it lists the open invitations.`,
		Example: `  nsqctl cluster invite n4.example
  nsqctl cluster invite n4.example --for 24h
  nsqctl cluster invite n4.example --withdraw
  nsqctl cluster invite`,
	}
	cmd.Flags().DurationVar(&length, "for", time.Hour, "how long the broker may join, at most 168h")
	cmd.Flags().BoolVar(&withdraw, "withdraw", false, "end the invitation")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return listInvitations(cmd, t)
		}
		query := url.Values{"node": args, "for": {length.String()}}
		if withdraw {
			query = url.Values{"node": args, "withdraw": {"true"}}
		}
		var made httpapi.Invitation
		if err := t.PostAny(cmd.Context(), "/v1/cluster/invite", query, &made); err != nil {
			return err
		}
		return cli.Print(cmd, t, made, func(w io.Writer) {
			if withdraw {
				fmt.Fprintf(w, "%s may not join; a broker that has joined stays a member\n", made.Node)
			} else {
				fmt.Fprintf(w, "%s may join until %s\n", made.Node, made.Until.Local().Format(time.DateTime))
			}
		})
	}
	return cmd
}

// listInvitations prints the brokers that may join.
func listInvitations(cmd *cobra.Command, t *cli.Target) error {
	if cmd.Flags().Changed("for") || cmd.Flags().Changed("withdraw") {
		return cli.Usage("--for and --withdraw need the name of a broker")
	}
	return cli.Show(cmd, t, "/v1/cluster/invite", nil, func(w io.Writer, v httpapi.InvitationsView) {
		fmt.Fprintln(w, "BROKER\tMAY JOIN UNTIL")
		for _, i := range v.Invitations {
			fmt.Fprintf(w, "%s\t%s\n", i.Node, i.Until.Local().Format(time.DateTime))
		}
	})
}
