package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/auth/access"
	"github.com/lockstepmq/lockstep/internal/auth/guard"
	"github.com/lockstepmq/lockstep/internal/frontend/httpapi"
)

func newUser(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "user",
		Short: "create, list, rotate and delete users",
		Long: `A cluster without users is open: every client may do everything. The first user must be an administrator.
It takes a secret, which each broker keeps in the file first-admin.token of its data path: on a broker's machine nsqctl
reads it itself, as root or as the broker's user; elsewhere give a copy with --token-file. From then on every client
needs a token (or a certificate), and has the rights that its user was granted with "nsqctl acl grant".

A token is shown once. Producers and consumers send it as their AUTH secret (go-nsq: Config.AuthSecret), HTTP clients as
"Authorization: Bearer TOKEN", and nsqctl reads it from --token-file or $LOCKSTEP_TOKEN.

The user "anonymous" stands for every client without credentials: create it to grant something to all of them, such as
metrics to a Prometheus without a token.`,
	}
	cmd.AddCommand(newUserCreate(t), newUserRotate(t), newUserQuota(t), &cobra.Command{
		Use:     "list",
		Short:   "all users, how they log in, their rights on the cluster, and how much of their quotas they use",
		Example: `  nsqctl user list -o json`,
		RunE: cli.ShowList(t, userList, "users", func(w io.Writer, users []httpapi.UserView) {
			fmt.Fprintln(w, "USER\tLOGIN\tCLUSTER\tPATTERNS\tQUOTA")
			for _, u := range users {
				fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", u.Name, u.Login, cmp.Or(string(u.Cluster), "-"), len(u.Topics), quotaText(u.Quota, u.Used))
			}
		}),
	}, &cobra.Command{
		Use:     "delete NAME",
		Short:   "delete a user with its rights",
		Long:    "delete removes a user. Its token is refused at once, and its subscriptions end. The last administrator cannot be deleted.",
		Example: `  nsqctl user delete shop-writer`,
		RunE:    t.Post("/v1/user/delete"),
	})
	return cmd
}

func newUserCreate(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "create a user; prints its token, which is not stored",
		Long: `create makes a user without rights, or with --admin one that administers the cluster. With --certificate
the user has no token: it is the client whose certificate has this common name (brokers with --tls-client-auth-policy
require-verify). A TCP client that must send some AUTH secret sends the word "certificate".`,
		Example: `  nsqctl user create root --admin --write-token root.token    # the first one, on a broker's machine
  nsqctl --token-file root.token user create shop-writer
  nsqctl --token-file root.token user create prometheus && nsqctl --token-file root.token acl grant prometheus --cluster observe
  nsqctl --token-file root.token user create anonymous`,
	}
	cmd.Flags().Bool("admin", false, "it administers the cluster: it may do everything")
	cmd.Flags().Bool("certificate", false, "it logs in with a certificate of this common name, and has no token")
	tokenFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := cli.Request(cmd, args, "admin", "certificate")
		return printToken(cmd, t, func() ([]byte, error) { return t.CreateUser(cmd.Context(), "", q) })
	}
	return cmd
}

func newUserRotate(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rotate NAME",
		Short: "give a user a new token; the old one is refused from now on",
		Long: `rotate makes a new token and prints it. The old one is refused at once, and the subscriptions of clients
that logged in with it end.`,
		Example: `  nsqctl user rotate shop-writer --write-token shop-writer.token`,
	}
	tokenFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return printToken(cmd, t, func() ([]byte, error) {
			return t.CallAny(cmd.Context(), http.MethodPost, "/v1/user/rotate", cli.Request(cmd, args))
		})
	}
	return cmd
}

func newUserQuota(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quota NAME",
		Short: "bound the topics, partitions and channels that a user creates, and its publish rate",
		Long: `quota changes the numbers that are given; 0 means no limit. Topics, partitions and durable channels count
if the user created them and they still exist. A creation beyond the limit is refused ("quota reached"); nothing is
deleted. A user without a quota may create 1,000 topics with 10,000 partitions, and 10,000 channels; one that
administers the cluster has no limit. A user with a limit of topics creates 100 at once and 5 a second afterwards, at
each broker ("rate limited").

The rates apply to a user's clients at one broker: three brokers admit three times as much. A put beyond them is refused
("rate limited, not stored"; HTTP 429).

The user "anonymous" has one quota for all clients without credentials together.`,
		Example: `  nsqctl user quota shop-writer --topics 20 --partitions 100 --channels 50
  nsqctl user quota shop-writer --put-rate 5000 --put-bytes-rate 10000000`,
	}
	f := cmd.Flags()
	numbers := []string{"topics", "partitions", "channels", "put-rate", "put-bytes-rate"}
	for i, of := range []string{"topics", "partitions of all its topics", "durable channels", "messages a second, at each broker", "bytes a second, at each broker"} {
		f.Int64(numbers[i], 0, of+"; 0 = no limit")
	}
	cmd.RunE = t.Post("/v1/user/quota", numbers...)
	return cmd
}

func tokenFlag(cmd *cobra.Command) {
	cmd.Flags().String("write-token", "", "write the token to this new file, which only you can read, and not to the terminal")
}

// printToken makes a request whose answer is a token, and prints the token or writes it to a file. The file is created
// first, because a token that cannot be written would be lost.
func printToken(cmd *cobra.Command, t *cli.Target, request func() ([]byte, error)) (err error) {
	var to *os.File
	file, _ := cmd.Flags().GetString("write-token") // declared by tokenFlag
	if file != "" {
		if to, err = os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return err
		}
		defer to.Close()
	}
	body, err := request()
	if err != nil && to != nil {
		_ = os.Remove(file) // it is empty
	}
	if err != nil {
		return err
	}
	var made httpapi.NewToken
	if err := json.Unmarshal(body, &made); err != nil {
		return err
	}
	if to != nil {
		_, err = fmt.Fprintln(to, made.Token)
		return err
	}
	return cli.Print(cmd, t, made, func(w io.Writer) {
		fmt.Fprintln(w, cmp.Or(made.Token, fmt.Sprintf("user %s has no token", made.Name)))
	})
}

// quotaText lists the limits of a quota, "3 of 20 topics" where their use is counted.
func quotaText(q access.Quota, used api.Usage) string {
	var parts []string
	for _, l := range []struct {
		used, n int
		of      string
	}{{used.Topics, q.Topics, "topics"}, {used.Partitions, q.Partitions, "partitions"}, {used.Channels, q.Channels, "channels"}} {
		if l.n > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d %s", l.used, l.n, l.of))
		}
	}
	if q.PutRate > 0 {
		parts = append(parts, fmt.Sprint(q.PutRate, " messages/s"))
	}
	if q.PutBytesRate > 0 {
		parts = append(parts, fmt.Sprint(q.PutBytesRate, " bytes/s"))
	}
	return cmp.Or(strings.Join(parts, ", "), "-")
}

const userList = "/v1/user/list"

func newACL(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "acl",
		Short: "grant, revoke and list the rights of users",
		Long: `Rights on topics are granted for a pattern: * stands for any characters, ? for one, everything else for
itself, and the whole name must match, an #ephemeral suffix included. A right counts at once, also for clients that are
connected.

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
	cmd := &cobra.Command{
		Use:   verb + " USER",
		Short: short,
		Example: `  nsqctl acl ` + verb + ` shop-writer --topic 'shop.*' --rights publish
  nsqctl acl ` + verb + ` shop-reader --topic 'shop.*' --rights consume,administer
  nsqctl acl ` + verb + ` prometheus --cluster observe`,
	}
	f := cmd.Flags()
	f.String("topic", "", "pattern of topics, with --rights")
	f.String("rights", "", "publish, consume, administer; several with commas")
	f.String("cluster", "", "observe or administer, instead of --topic and --rights")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := cli.Request(cmd, args, "topic", "rights", "cluster")
		if q.Has("topic") != q.Has("rights") || q.Has("topic") == q.Has("cluster") {
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
			users, err := brokerapi.List[httpapi.UserView](cmd.Context(), &t.Client, userList, nil, "users")
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
		Long: `audit lists the last 1,000 administrative actions that came to the first broker that answers: when, by
which identity, from where, what, and with which result. Each broker has its own list; all actions are in the brokers'
logs too (audit=true).`,
		Example: `  nsqctl audit --nsqd-http-address n1:4151`,
		RunE: cli.ShowList(t, "/v1/audit", "entries", func(w io.Writer, entries []guard.Entry) {
			for _, e := range entries {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d %s\n", e.Time.Format(time.RFC3339), api.Printable(e.Identity), e.Remote, api.Printable(e.Action), api.Printable(e.Detail), e.Status, e.Result)
			}
		}),
	}
}
