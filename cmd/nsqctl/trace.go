package main

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockstepmq/lockstep/cmd/nsqctl/internal/cli"
	"github.com/lockstepmq/lockstep/internal/api"
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
		RunE: func(cmd *cobra.Command, args []string) error {
			return cli.Show(cmd, t, "/v1/trace", url.Values{"topic": {topic}, "id": {args[0]}}, printTrace)
		},
	}
	cmd.Flags().StringVar(&topic, "topic", "", "the topic of the message")
	return cli.Required(cmd, "topic")
}

// printTrace writes the trace as text.
func printTrace(w io.Writer, m api.MessageTrace) {
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
	fmt.Fprintf(w, "leader %s, epoch %d, in sync %s of %s\n", m.Leader, m.Epoch, cli.Names(m.ISR), cli.Names(m.Replicas))
	if len(m.Channels) > 0 {
		fmt.Fprintln(w, "CHANNEL\tSTATE\tATTEMPTS\tUNTIL\tCLIENTS")
	}
	for _, c := range m.Channels {
		until := "-"
		if c.Deadline != 0 {
			until = instant(c.Deadline)
		}
		clients := cmp.Or(strings.Join(c.Clients, ","), "-")
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", c.Channel, c.State, c.Attempts, until, clients)
	}
}

func instant(unixNS int64) string { return time.Unix(0, unixNS).Format(time.RFC3339Nano) }
