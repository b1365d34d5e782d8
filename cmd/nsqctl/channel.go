package main

import (
	"fmt"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/brokerapi"
	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/option"
)

func newChannel(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{Use: "channel", Short: "list, create, move, pause, empty and delete channels; deferred messages and dead letters"}
	for _, verb := range []string{"pause", "unpause", "empty", "delete"} {
		cmd.AddCommand(&cobra.Command{
			Use:     verb + " TOPIC CHANNEL",
			Short:   verb + " a channel",
			Example: "  nsqctl channel " + verb + " orders billing",
			Args:    cobra.ExactArgs(2),
			RunE: func(cmd *cobra.Command, args []string) error {
				_, err := t.CallAny(cmd.Context(), http.MethodPost, "/channel/"+verb, channelArgs(args))
				return err
			},
		})
	}
	cmd.AddCommand(newChannelList(t), newChannelDescribe(t), newChannelCreate(t), newChannelSeek(t), newChannelOrder(t), newChannelDeferred(t), newChannelCancel(t), newChannelPolicy(t), newChannelRedrive(t))
	return cmd
}

// channelArgs are the arguments TOPIC CHANNEL.
func channelArgs(args []string) url.Values {
	return url.Values{"topic": args[:1], "channel": args[1:2]}
}

func newChannelCreate(t *cli.Target) *cobra.Command {
	var from, filter string
	var ordered bool
	cmd := &cobra.Command{
		Use:   "create TOPIC CHANNEL",
		Short: "create a channel",
		Example: `  nsqctl channel create orders audit --from earliest
  nsqctl channel create orders europe --filter 'header:region^=eu-'`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := channelArgs(args)
			if from != "" {
				place, err := cli.Place(from)
				if err != nil {
					return err
				}
				q.Set("from", place)
			}
			if filter != "" {
				q.Set("filter", filter)
			}
			if cmd.Flags().Changed("ordered") {
				q.Set("ordered", fmt.Sprint(ordered))
			}
			_, err := t.CallAny(cmd.Context(), http.MethodPost, "/channel/create", q)
			return err
		},
	}
	cmd.Flags().StringVar(&from, "from", "", cli.Places+"; default: the first channel of a topic begins with its first message, any other with the next message")
	cmd.Flags().BoolVar(&ordered, "ordered", false, "ordered: one message in flight per partition")
	cmd.Flags().StringVar(&filter, "filter", "", option.FilterHelp)
	return cmd
}

func newChannelOrder(t *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:     "order TOPIC CHANNEL true|false",
		Short:   "switch the order of a channel on or off: one message in flight per partition",
		Example: `  nsqctl channel order orders billing true`,
		Args:    cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := channelArgs(args)
			q.Set("order", args[2])
			_, err := t.CallAny(cmd.Context(), http.MethodPost, "/channel/setorder", q)
			return err
		},
	}
}

func newChannelDeferred(t *cli.Target) *cobra.Command {
	limit := 0
	cmd := &cobra.Command{
		Use:   "deferred TOPIC CHANNEL",
		Short: "list deferred messages, the next due first",
		Example: `  nsqctl channel deferred orders billing -n 20
  nsqctl channel deferred orders billing -o json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := channelArgs(args)
			q.Set("limit", fmt.Sprint(limit))
			var v struct {
				Messages []api.DeferredMessage `json:"messages"`
			}
			if err := t.GetAny(cmd.Context(), "/v1/channel/deferred", q, &v); err != nil {
				return err
			}
			if t.Output == "json" {
				return cli.PrintJSON(cmd.OutOrStdout(), v.Messages)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "ID\tPARTITION\tATTEMPTS\tDUE")
			for _, m := range v.Messages {
				fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", m.ID, m.Partition, m.Attempts, time.Unix(0, m.DeadlineNS).Format(time.RFC3339))
			}
			return w.Flush()
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 100, "largest number of messages")
	return cmd
}

func newChannelCancel(t *cli.Target) *cobra.Command {
	return &cobra.Command{
		Use:     "cancel TOPIC CHANNEL ID...",
		Short:   "finish deferred messages before they are due",
		Example: `  nsqctl channel cancel orders billing d910000000000007     # an id of "channel deferred"`,
		Args:    cobra.MinimumNArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := channelArgs(args)
			q["id"] = args[2:]
			n, err := count(cmd, t, "/v1/channel/deferred/cancel", q, "cancelled")
			if err != nil {
				return err
			}
			return printCount(cmd, t, n, "cancelled")
		},
	}
}

func newChannelPolicy(t *cli.Target) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy TOPIC CHANNEL",
		Short: "show or set the policy for failing messages, and the filter",
		Long: `policy shows or sets the treatment of failing messages, and the filter of a channel.

A filter is one condition on one header: tag=blue, header:region=eu,
header:region^=eu- (prefix), header:region*=eu-* (glob) or
header:region~=^eu-(west|east)$ (RE2); ! in front means the opposite. Messages
that it rejects are finished for this channel. A change applies to all messages
that are delivered from then on; messages that are finished already stay
finished, until "channel seek" moves the channel back.`,
		Example: `  nsqctl channel policy orders billing --max-attempts 5 --dead-letter-topic orders-dead --retry-backoff 1s,2,5m,0.2
  nsqctl channel policy orders billing --max-attempts 0
  nsqctl channel policy orders europe --filter 'header:region^=eu-'
  nsqctl channel policy orders europe --filter ''`,
		Args: cobra.ExactArgs(2),
	}
	for _, r := range option.Policies {
		cmd.Flags().String(r.Flag(), "", r.Help)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q, set := channelArgs(args), false
		for _, r := range option.Policies {
			if cmd.Flags().Changed(r.Flag()) {
				v, _ := cmd.Flags().GetString(r.Flag())
				q.Set(r.Name, v)
				set = true
			}
		}
		if set {
			if _, err := t.CallAny(cmd.Context(), http.MethodPost, "/v1/channel/policy", q); err != nil {
				return err
			}
		}
		var p api.ChannelPolicy
		if err := t.GetAny(cmd.Context(), "/v1/channel/policy", channelArgs(args), &p); err != nil {
			return err
		}
		return cli.PrintJSON(cmd.OutOrStdout(), p)
	}
	return cmd
}

func newChannelRedrive(t *cli.Target) *cobra.Command {
	limit := 0
	cmd := &cobra.Command{
		Use:     "redrive TOPIC CHANNEL",
		Short:   "move a channel's dead letters back to it",
		Example: `  nsqctl channel redrive orders billing -n 100`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return redrive(cmd, t, args, limit)
		},
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 1000, "largest number of messages")
	return cmd
}

// redriveEach bounds one request: a broker answers after it has moved all messages.
const redriveEach = 1000

// redrive moves dead letters back until none is left or limit is reached.
func redrive(cmd *cobra.Command, t *cli.Target, args []string, limit int) error {
	q, moved := channelArgs(args), 0
	for {
		ask := min(limit-moved, redriveEach)
		q.Set("limit", fmt.Sprint(ask))
		n, err := count(cmd, t, "/v1/channel/redrive", q, "redriven")
		if moved += n; err != nil && moved > 0 {
			return fmt.Errorf("%d were redriven, then: %w", moved, err)
		}
		if err != nil {
			return err
		}
		if n < ask || moved == limit {
			return printCount(cmd, t, moved, "redriven")
		}
	}
}

// count sends a POST and returns the number in the named field of the answer.
func count(cmd *cobra.Command, t *cli.Target, path string, q url.Values, name string) (int, error) {
	body, err := t.CallAny(cmd.Context(), http.MethodPost, path, q)
	if err != nil {
		return 0, err
	}
	var n map[string]int
	err = brokerapi.Decode(body, path, &n)
	return n[name], err
}

func printCount(cmd *cobra.Command, t *cli.Target, n int, name string) error {
	if t.Output == "json" {
		return cli.PrintJSON(cmd.OutOrStdout(), map[string]int{name: n})
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%d %s\n", n, name)
	return err
}
