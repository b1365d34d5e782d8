package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
)

func newACL(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "acl",
		Short: "grant, revoke and list the rights of users",
		Long: `Rights on topics are granted for a pattern: * stands for any characters, ? for
one, everything else for itself, and the whole name must match, an #ephemeral
suffix included. A right counts at once, also for clients that are connected.

  --topic PATTERN --rights   publish      PUB, MPUB, DPUB and their variants, /pub, /mpub
                             consume      SUB and its variants, nsqctl peek
                             administer   create, empty, pause and delete; seek; policies
  --cluster                  observe      statistics, metrics, settings, the cluster's state
                             administer   everything, users included`,
	}
	cmd.AddCommand(newRights(t, "grant", "give a user rights"), newRights(t, "revoke", "take rights from a user, on exactly this pattern"), newACLList(t))
	return cmd
}

func newRights(t *cli.Target, verb, short string) *cobra.Command {
	var topic, rights, cluster string
	cmd := &cobra.Command{
		Use:   verb + " USER",
		Short: short,
		Example: `  nsqctl acl ` + verb + ` shop-writer --topic 'shop.*' --rights publish
  nsqctl acl ` + verb + ` shop-reader --topic 'shop.*' --rights consume,administer
  nsqctl acl ` + verb + ` prometheus --cluster observe`,
	}
	f := cmd.Flags()
	f.StringVar(&topic, "topic", "", "pattern of topics, with --rights")
	f.StringVar(&rights, "rights", "", "publish, consume, administer; several with commas")
	f.StringVar(&cluster, "cluster", "", "observe or administer, instead of --topic and --rights")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := url.Values{"user": args}
		switch {
		case cluster != "" && topic == "" && rights == "":
			q.Set("cluster", cluster)
		case cluster == "" && topic != "" && rights != "":
			q.Set("topic", topic)
			q.Set("rights", rights)
		default:
			return errors.New("give --topic and --rights, or --cluster")
		}
		return t.PostAny(cmd.Context(), "/v1/acl/"+verb, q, nil)
	}
	return cmd
}

func newACLList(t *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:     "list [USER]",
		Short:   "the rights of all users, or of one",
		Example: `  nsqctl acl list shop-writer`,
		RunE: func(cmd *cobra.Command, args []string) error {
			users, err := users(cmd, t)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				users = slices.DeleteFunc(users, func(u httpapi.UserView) bool { return u.Name != args[0] })
				if len(users) == 0 {
					return fmt.Errorf("no user %q", args[0])
				}
			}
			return cli.Print(cmd, t, users, func(w io.Writer) {
				fmt.Fprintln(w, "USER\tON\tRIGHTS")
				for _, u := range users {
					if u.Cluster != "" {
						fmt.Fprintf(w, "%s\tthe cluster\t%s\n", u.Name, u.Cluster)
					}
					for _, g := range u.Topics {
						fmt.Fprintf(w, "%s\ttopics %s\t%s\n", u.Name, g.Topic, g.Rights)
					}
				}
			})
		},
	}
}

func newAudit(t *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:   "audit",
		Short: "the last administrative actions on one broker",
		Long: `audit lists the last 1,000 administrative actions that came to the first broker
that answers: when, by which identity, from where, what, and with which result.
Each broker keeps its own; all of them are in the brokers' logs too (audit=true).`,
		Example: `  nsqctl audit --nsqd-http-address n1:4151`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var v httpapi.AuditView
			if err := t.GetAny(cmd.Context(), "/v1/audit", nil, &v); err != nil {
				return err
			}
			return cli.Print(cmd, t, v.Entries, func(w io.Writer) {
				for _, e := range v.Entries {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d %s\n", e.Time.Format(time.RFC3339), api.Printable(e.Identity), e.Remote, api.Printable(e.Action), api.Printable(e.Detail), e.Status, e.Result)
				}
			})
		},
	}
}
