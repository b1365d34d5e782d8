package main

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
	"github.com/lockstepmq/lockstep/internal/ident"
)

func newTrace(t *cli.Target) *cobra.Command {
	var topic string
	cmd := &cobra.Command{
		Use:   "trace ID --topic TOPIC",
		Short: "show where a message is",
		Long: `trace shows the state of one message, as the leader of its partition has it now: in
the log, and in every channel. Nothing is recorded for it, so it has no history:
a finished message does not say who finished it. The id is that of nsqctl tail,
peek and the client.`,
		Example: `  nsqctl trace 5a10000000000000 --topic orders`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var m api.MessageTrace
			if err := t.GetAny(cmd.Context(), "/v1/trace", url.Values{"topic": {topic}, "id": {args[0]}}, &m); err != nil {
				return err
			}
			if t.Output == "json" {
				return cli.PrintJSON(cmd.OutOrStdout(), m)
			}
			return printTrace(cmd.OutOrStdout(), m)
		},
	}
	cmd.Flags().StringVar(&topic, "topic", "", "the topic of the message")
	_ = cmd.MarkFlagRequired("topic")
	return cmd
}

// printTrace writes the trace as text.
func printTrace(out io.Writer, m api.MessageTrace) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "message %s of %s/%d, sequence %d: %s\n", m.ID, m.Topic, m.Partition, m.Sequence, m.State)
	if m.Time != 0 {
		fmt.Fprintf(w, "stored %s, %d bytes\n", instant(m.Time), m.Bytes)
	}
	if m.DeliverAt != 0 {
		fmt.Fprintf(w, "due %s\n", instant(m.DeliverAt))
	}
	if len(m.Header) > 0 {
		fmt.Fprintf(w, "header %s\n", api.Printable(string(m.Header)))
	}
	fmt.Fprintf(w, "leader %s, epoch %d, in sync %s of %s\n", m.Leader, m.Epoch, nodes(m.ISR), nodes(m.Replicas))
	if len(m.Channels) > 0 {
		fmt.Fprintln(w, "CHANNEL\tSTATE\tATTEMPTS\tUNTIL\tCLIENTS")
	}
	for _, c := range m.Channels {
		until := "-"
		if c.Deadline != 0 {
			until = instant(c.Deadline)
		}
		clients := "-"
		if len(c.Clients) > 0 {
			clients = strings.Join(c.Clients, ",")
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", c.Channel, c.State, c.Attempts, until, clients)
	}
	return w.Flush()
}

func instant(unixNS int64) string { return time.Unix(0, unixNS).Format(time.RFC3339Nano) }

func nodes(list []ident.Node) string {
	names := make([]string, len(list))
	for i, n := range list {
		names[i] = string(n)
	}
	return strings.Join(names, ",")
}
